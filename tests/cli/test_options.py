#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The one table of verbs and options arrives everywhere: help, man pages, three completions, config."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

MAN = plimtest.ROOT / "docs" / "man"
BUILT_MAN = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", plimtest.ROOT / "build")) / "docs" / "man"


def table():
    return json.loads(plimtest.run("help", "--format", "json").stdout)


def text_of(*args):
    result = plimtest.run(*args)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode()


def filled_page(verb):
    """The man page source with its generated parts, as scdoc gets it."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([sys.executable, plimtest.ROOT / "tools" / "build_man.py", plimtest.PROGRAM, "-",
                        MAN / f"plimsoll-{verb}.1.scd", out.name], check=True)
        return pathlib.Path(out.name).read_text(encoding="utf-8")


def section(page, title):
    match = re.search(rf"^# {title}\n(.*?)(?=^# |\Z)", page, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else ""


class TableTest(unittest.TestCase):
    def test_help_lists_every_option_of_every_verb(self):
        """help lists every option of every verb"""
        for verb in table()["verbs"]:
            text = text_of(verb["name"], "--help")
            for option in verb["options"]:
                self.assertIn(f"--{option['name']}", text, verb["name"])
                if option["letter"]:
                    self.assertIn(f"-{option['letter']}, --{option['name']}", text)

    def test_help_keeps_to_the_columns_of_a_terminal(self):
        """help is at most 80 columns wide, and no choice is cut off"""
        texts = {"help": text_of("help")}
        for verb in table()["verbs"]:
            texts[verb["name"]] = text_of(verb["name"], "--help")
            flat = re.sub(r"\|\n +", "|", texts[verb["name"]])
            for option in verb["options"]:
                if option["argument"]:
                    self.assertRegex(flat, rf"--{option['name']} {re.escape(option['argument'])}(\s|$)")
        for name, text in texts.items():
            self.assertEqual([], [line for line in text.splitlines() if len(line) > 80], name)
            self.assertNotIn("?.", text, name)

    def test_program_help_lists_every_verb(self):
        """the program's help lists every verb"""
        text = text_of("help")
        for verb in table()["verbs"]:
            self.assertRegex(text, rf"(?m)^  {verb['name']} ")

    def test_every_verb_has_a_complete_man_page(self):
        """every verb has a man page with its options, examples and exit status"""
        for verb in table()["verbs"]:
            page = filled_page(verb["name"])
            self.assertNotRegex(page, r"(?m)^@[A-Z]+@$")
            options = section(page, "OPTIONS")
            for option in verb["options"]:
                self.assertIn(f"*--{option['name']}*", options, verb["name"])
            self.assertIn(f"$ plimsoll {verb['name']}", section(page, "EXAMPLES"), verb["name"])
            self.assertIn("*64*", section(page, "EXIT STATUS"))

    def test_the_verb_list_of_the_main_page_is_complete(self):
        """the main man page lists every verb"""
        text = text_of("help", "--format", "scdoc")
        for verb in table()["verbs"]:
            self.assertIn(f"*{verb['name']}*\n", text)

    def test_completions_know_every_option(self):
        """the completions of bash, zsh and fish know every verb and option"""
        scripts = {shell: text_of("completion", shell) for shell in ("bash", "zsh", "fish")}
        for verb in table()["verbs"]:
            for shell, script in scripts.items():
                self.assertIn(verb["name"], script, shell)
            for option in verb["options"]:
                self.assertIn(f"--{option['name']}", scripts["bash"])
                self.assertIn(f"--{option['name']}", scripts["zsh"])
                self.assertIn(f"from {verb['name']}' -l {option['name']}", scripts["fish"])

    def test_short_letters_are_unique_in_a_verb(self):
        """no verb uses a name or a letter twice"""
        for verb in table()["verbs"]:
            letters = [o["letter"] for o in verb["options"] if o["letter"]]
            names = [o["name"] for o in verb["options"]]
            self.assertEqual(len(letters), len(set(letters)), verb["name"])
            self.assertEqual(len(names), len(set(names)), verb["name"])

    def test_same_option_means_the_same_everywhere(self):
        """an option of several verbs has the same letter and kind in each"""
        seen = {}
        for verb in table()["verbs"]:
            for option in verb["options"]:
                # A list takes what a text takes, and more of it.
                kind = "text" if option["kind"] == "list" else option["kind"]
                what = (option["letter"], kind)
                self.assertEqual(seen.setdefault(option["name"], what), what, option["name"])

    def test_help_texts_have_one_style(self):
        """help texts are one phrase without a capital at the start or a full stop at the end"""
        for verb in table()["verbs"]:
            for text in [verb["about"]] + [o["help"] for o in verb["options"]]:
                self.assertFalse(text.endswith("."), text)
                self.assertNotRegex(text, r"^[A-Z][a-z]", text)


class CompletionTest(unittest.TestCase):
    def check(self, shell, *words):
        if shutil.which(words[0]) is None:
            self.skipTest(f"no {words[0]}")
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script"
            script.write_text(text_of("completion", shell), encoding="utf-8")
            result = subprocess.run([*words, str(script)], capture_output=True, text=True, check=False,
                                    env=plimtest.clean_environment(folder))
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_bash_script_is_valid(self):
        """bash accepts its completion script"""
        self.check("bash", "bash", "-n")

    def test_zsh_script_is_valid(self):
        """zsh accepts its completion script"""
        self.check("zsh", "zsh", "-n")

    def test_fish_script_is_valid(self):
        """fish accepts its completion script"""
        self.check("fish", "fish", "-n")

    def test_shellcheck_is_content(self):
        """shellcheck finds nothing in the bash completion script"""
        self.check("bash", "shellcheck")

    def test_bash_completes_verbs_options_and_choices(self):
        """bash completes a verb, an option and a choice"""
        for words, wanted in ((["plimsoll", "compl"], "completion"), (["plimsoll", "help", "--fo"], "--format"),
                              (["plimsoll", "help", "--format", "j"], "json"),
                              (["plimsoll", "completion", "z"], "zsh")):
            script = (text_of("completion", "bash") + f"\nCOMP_WORDS=({' '.join(words)})\n"
                      f"COMP_CWORD={len(words) - 1}\n_plimsoll\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n")
            result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
            self.assertIn(wanted, result.stdout.split(), words)


class ManPageTest(unittest.TestCase):
    def test_mandoc_finds_no_fault(self):
        """mandoc finds no fault in the man pages"""
        if shutil.which("mandoc") is None:
            self.skipTest("no mandoc")
        pages = sorted(BUILT_MAN.glob("*.1"))
        if not pages:
            self.skipTest("the man pages are not built (no scdoc)")
        self.assertEqual(len(pages), len(list(MAN.glob("*.scd"))), "a page is missing in docs/man/meson.build")
        for page in pages:
            result = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True,
                                    text=True, check=False)
            # scdoc writes .PP after each block, which is harmless.
            faults = [line for line in (result.stdout + result.stderr).splitlines()
                      if "skipping paragraph macro" not in line]
            self.assertEqual(faults, [])


class JsonTest(unittest.TestCase):
    def test_help_json_keeps_its_contract(self):
        """help as JSON keeps its schema"""
        self.assertEqual(plimtest.schema_complaints(table()), [])

    def test_every_schema_is_a_valid_schema(self):
        """every file of docs/schema is a JSON Schema"""
        import jsonschema

        for schema in plimtest.schemas().values():
            jsonschema.validators.validator_for(schema).check_schema(schema)


if __name__ == "__main__":
    plimtest.main()
