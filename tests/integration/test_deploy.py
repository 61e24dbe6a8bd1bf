#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is in deploy/ works with the programs that it is for: Prometheus, VictoriaMetrics, systemd, dpkg, Kubernetes,
Envoy."""

import fnmatch
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import monitor  # noqa: E402
import plimtest  # noqa: E402
import test_gate_daemon  # noqa: E402

DEPLOY = plimtest.ROOT / "deploy"
BUILD = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", plimtest.ROOT / "build"))
ENV_PYTHON = plimtest.ROOT / ".venv-deploy" / "bin" / "python"
ENVOY = next((plimtest.ROOT / ".venv-deploy").glob("lib/python3*/site-packages/envoy/_bin/envoy"), None)
NAME = re.compile(r"(?<![\w:/.-])plimsoll_[a-z0-9_]+(?![\w*(])")


def needs(*programs):
    absent = [p for p in programs if shutil.which(p) is None]
    return unittest.skipIf(absent, f"no {', '.join(absent)} here")


def said_by(*command, **kwargs):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, check=False, **kwargs)
    return result.returncode, result.stdout + result.stderr


def read(path):
    return (DEPLOY / path).read_text(encoding="utf-8")


def yaml_of(path):
    """The documents of a YAML file, through an environment that has a reader of YAML."""
    code = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    return json.loads(subprocess.run([ENV_PYTHON, "-c", code, DEPLOY / path], capture_output=True, check=True).stdout)


def documented():
    """Names of all metrics, as the manual's table has them."""
    return set(re.findall(r"plimsoll_[a-z0-9_]+", (plimtest.ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))


class Rules(unittest.TestCase):
    @needs("promtool")
    def test_rules(self):
        """Each alerting rule fires when it should and not before; promtool tests them"""
        code, text = said_by("promtool", "test", "rules", "rules_test.yml", cwd=DEPLOY / "prometheus")
        self.assertEqual(code, 0, text)
        alerts = set(re.findall(r"- alert: (\w+)", read("prometheus/rules.yml")))
        tested = set(re.findall(r"alertname: (\w+)", read("prometheus/rules_test.yml")))
        self.assertEqual(alerts - tested, set())

    @needs("promtool", "amtool")
    def test_configurations(self):
        """Prometheus' and Alertmanager's configurations are accepted"""
        for command in (["promtool", "check", "rules", DEPLOY / "prometheus/rules.yml"],
                        ["promtool", "check", "config", "--syntax-only", DEPLOY / "prometheus/prometheus.yml"],
                        ["amtool", "check-config", DEPLOY / "prometheus/alertmanager.yml"]):
            code, text = said_by(*command)
            self.assertEqual(code, 0, text)
        for alert in read("prometheus/rules.yml").split("- alert: ")[1:]:
            self.assertIn("next_step:", alert)
            self.assertRegex(alert, "severity: (notice|warning|critical)")

    @needs("amtool")
    def test_routes(self):
        """Critical alerts go to the pager, warnings to the chat, notices nowhere"""
        for severity, receiver in (("critical", "pager"), ("warning", "chat"), ("notice", "nobody")):
            code, text = said_by("amtool", "config", "routes", "test",
                                 f"--config.file={DEPLOY / 'prometheus/alertmanager.yml'}", f"severity={severity}")
            self.assertEqual((code, text.splitlines()[0]), (0, receiver))

    def test_names(self):
        """Every metric that a file names is one of the program's"""
        known = documented()
        for path in sorted(DEPLOY.rglob("*")):
            if path.suffix in (".yml", ".json", ".conf", ".yaml"):
                self.assertEqual(set(NAME.findall(path.read_text(encoding="utf-8"))) - known, set(), path)

    @needs("vmalert", "victoria-metrics")
    def test_victoria_configurations(self):
        """VictoriaMetrics accepts its scrape configuration, and vmalert the rules"""
        with tempfile.TemporaryDirectory() as where:
            for command in (["vmalert", "-dryRun", f"-rule={DEPLOY / 'prometheus/rules.yml'}"],
                            ["vmagent", "-dryRun", f"-promscrape.config={DEPLOY / 'victoriametrics/scrape.yml'}",
                             "-remoteWrite.url=http://127.0.0.1:1/"]):
                code, text = said_by(*command, cwd=where)
                self.assertEqual(code, 0, text)


class Envoy(test_gate_daemon.Daemon):
    @unittest.skipIf(not ENVOY, "no Envoy here")
    def test_asks_before_it_passes_on(self):
        """Envoy with deploy/envoy passes on what fits, gives the gate's refusals to the client, and passes all when the gate is away"""
        engine = test_gate_daemon.Engine(blocks=101)
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        gate = self.start("--engine-url", f"127.0.0.1:{engine.port}", "--max-length", 2048)
        self.until(lambda: self.ask(gate.port, "GET", "/readyz")[0] == 200)
        front = self.envoy(gate.port, engine.port)
        self.assertEqual(self.ask(front, "POST", "/v1/completions", {"prompt": "word " * 20, "max_tokens": 10})[:2], (200, {"ok": True}))
        self.assertEqual(engine.served, 1)
        status, told, headers = self.ask(front, "POST", "/v1/chat/completions", {"prompt": "a"}, {"X-Plimsoll-Prompt-Tokens": "5000"})
        self.assertEqual((status, told["error"]["code"]), (400, "context_length_exceeded"))
        self.assertEqual((headers["x-plimsoll-reason"], headers["x-should-retry"]), ("too_long", "false"))
        engine.usage = 1.0
        self.until(lambda: self.ask(gate.port, "GET", "/v1/pressure")[1].get("used_units") == 100)
        status, told, headers = self.ask(front, "POST", "/v1/completions", {"prompt": "word " * 20})
        self.assertEqual((status, told["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertTrue(1 <= int(headers["retry-after"]) <= 60)
        self.assertEqual(engine.served, 1)
        gate.kill()
        gate.wait()
        self.assertEqual(self.ask(front, "POST", "/v1/completions", {"prompt": "word " * 20})[0], 200)

    def envoy(self, gate_port, engine_port):
        """Envoy with the filter and the cluster of deploy/, in front of an engine; its port."""
        text = json.dumps(yaml_of("envoy/ext_authz.yaml")[0]).replace("127.0.0.1:9755", f"127.0.0.1:{gate_port}")
        ours = json.loads(text.replace('"port_value": 9755', f'"port_value": {gate_port}'))
        typed = "type.googleapis.com/envoy.extensions.filters.http."
        manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
        router = {"name": "envoy.filters.http.router", "typed_config": {"@type": typed + "router.v3.Router"}}
        front = plimtest.free_port()

        def address(port):
            return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

        engine = {"name": "engine", "type": "STATIC", "load_assignment": {"cluster_name": "engine", "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": address(engine_port)}}]}]}}
        hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engine"}}]}]
        filters = [{"name": "http", "typed_config": {"@type": manager, "stat_prefix": "http", "route_config": {"virtual_hosts": hosts},
                                                     "http_filters": [*ours["http_filters"], router]}}]
        path = pathlib.Path(self.folder.name) / "envoy.json"
        path.write_text(json.dumps({"static_resources": {
            "listeners": [{"address": address(front), "filter_chains": [{"filters": filters}]}], "clusters": [*ours["clusters"], engine]}}))
        code, text = said_by(ENVOY, "--mode", "validate", "-c", path)
        self.assertEqual(code, 0, text)
        log = open(path.with_suffix(".log"), "wb")
        self.addCleanup(log.close)
        self.running.append(subprocess.Popen([ENVOY, "-c", path, "--concurrency", "1", "--disable-hot-restart"], stdout=log, stderr=log))

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", front)) == 0

        self.until(listens)
        return front


class Dashboards(unittest.TestCase):
    def test_written_by_the_generator(self):
        """The dashboards are what make_dashboards.py writes"""
        with monitor.folder() as where:
            subprocess.run([sys.executable, DEPLOY / "grafana/make_dashboards.py", where], check=True)
            for path in where.glob("*.json"):
                self.assertEqual(path.read_text(encoding="utf-8"), read(f"grafana/{path.name}"), path.name)
            self.assertEqual(len(list(where.glob("*.json"))), 3)

    def start(self, where, *command):
        log = open(where / (pathlib.Path(command[0]).name + ".log"), "wb")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, cwd=where)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def machine(self, where):
        """A monitor of a device that fills up, a process that comes and goes, and an engine; its port."""
        engine = monitor.Engine()
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        monitor.write_samples(where / "samples", *[(40 + (i % 20) / 10, 5) for i in range(12)], (79.5, 1))
        port = plimtest.free_port()
        m = monitor.Monitor(where, f"[engine vllm]\nurl = http://127.0.0.1:{engine.server_port}/metrics\n",
                            listen=f"127.0.0.1:{port}")
        self.addCleanup(m.__exit__)
        return port

    def ask(self, base, query):
        answer = json.loads(monitor.fetch(base + "/api/v1/query?" + urllib.parse.urlencode({"query": query})))
        return answer["data"]["result"]

    @needs("prometheus")
    def test_queries(self):
        """Every query of every panel gives data from a real Prometheus, or the panel says what that needs"""
        with monitor.folder() as where:
            target, port = self.machine(where), plimtest.free_port()
            (where / "prometheus.yml").write_text(
                "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                f"rule_files: ['{DEPLOY / 'prometheus/rules.yml'}']\nscrape_configs:\n"
                f"- {{job_name: plimsoll, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n", encoding="utf-8")
            self.start(where, "prometheus", f"--config.file={where}/prometheus.yml", f"--storage.tsdb.path={where}/data",
                       f"--web.listen-address=127.0.0.1:{port}")
            base = f"http://127.0.0.1:{port}"

            def ready():
                try:
                    return self.ask(base, "plimsoll_finding_active") and self.ask(
                        base, "instance_engine:plimsoll_engine_preemptions:rate5m")
                except OSError:
                    return None

            plimtest.wait_for("data in Prometheus", ready)
            panels = [(path.name, panel) for path in sorted((DEPLOY / "grafana").glob("*.json"))
                      for panel in json.loads(path.read_text(encoding="utf-8"))["panels"] if panel["type"] != "row"]
            self.assertGreater(len(panels), 25)
            for name, panel in panels:
                for target in panel["targets"]:
                    query = re.sub(r"\$(instance|uuid)", ".*", target["expr"]).replace("$__rate_interval", "30s")
                    self.assertNotIn("$", query)
                    if panel["description"].startswith("Needs "):
                        self.ask(base, query)
                    else:
                        plimtest.wait_for(f"data of {name}: {panel['title']}: {query}", lambda q=query: self.ask(base, q))
            broken = json.loads(monitor.fetch(base + "/api/v1/rules"))["data"]["groups"]
            self.assertEqual([r["name"] for g in broken for r in g["rules"] if r["health"] == "err"], [])

    @needs("victoria-metrics")
    def test_victoria_metrics(self):
        """VictoriaMetrics scrapes the monitor and answers the recorded ratio's expression"""
        with monitor.folder() as where:
            target, port = self.machine(where), plimtest.free_port()
            (where / "scrape.yml").write_text(
                "global: {scrape_interval: 1s}\nscrape_configs:\n"
                f"- {{job_name: plimsoll, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n", encoding="utf-8")
            self.start(where, "victoria-metrics", f"-promscrape.config={where}/scrape.yml",
                       f"-storageDataPath={where}/data", f"-httpListenAddr=127.0.0.1:{port}", "-memory.allowedBytes=64MB",
                       "-search.latencyOffset=0s")
            base = f"http://127.0.0.1:{port}"

            def ratio():
                try:
                    return self.ask(base, "plimsoll_device_memory_used_bytes / (plimsoll_device_memory_used_bytes"
                                          " + plimsoll_device_memory_free_bytes)")
                except OSError:
                    return None

            found = plimtest.wait_for("the ratio", ratio)[0]
            self.assertTrue(0.4 < float(found["value"][1]) <= 1.0)


class Machine(unittest.TestCase):
    def test_example_of_settings(self):
        """deploy/plimsoll.conf is what --example-settings prints, and is good"""
        example = plimtest.run("watch", "--example-settings").stdout.decode()
        self.assertEqual(read("plimsoll.conf"), example)
        checked = plimtest.run("watch", "--check-settings", "--settings", DEPLOY / "plimsoll.conf")
        self.assertEqual(checked.returncode, 0, checked.stderr)

    @needs("systemd-analyze")
    def test_service(self):
        """systemd accepts the unit, and finds little that it exposes"""
        unit = read("systemd/plimsoll.service").replace("/usr/bin/plimsoll", plimtest.PROGRAM)
        unit = re.sub("(?m)^Documentation=.*\n", "", unit)
        with tempfile.TemporaryDirectory() as where:
            path = pathlib.Path(where) / "plimsoll.service"
            path.write_text(unit, encoding="utf-8")
            code, text = said_by("systemd-analyze", "verify", path)
            self.assertEqual((code, text.strip()), (0, ""))
            code, text = said_by("systemd-analyze", "security", "--offline=true", "--threshold=35", path)
            self.assertEqual(code, 0, text)
            self.assertIn("Overall exposure level", text)

    def test_options_of_the_service(self):
        """What units, manifests, proxies' files and the image call the program with are options that it has"""
        for verb, paths in (("watch", ("systemd/plimsoll.service", "kubernetes/plimsoll.yaml", "container/Containerfile")),
                            ("run", ("systemd/plimsoll-run@.service",)),
                            ("gate", ("haproxy/haproxy.cfg", "nginx/plimsoll-gate.conf", "envoy/ext_authz.yaml"))):
            known = plimtest.run(verb, "--help").stdout.decode()
            for path in paths:
                for line in read(path).splitlines():
                    called = line.split(f"plimsoll {verb} ", 1)[-1] if f"plimsoll {verb} " in line else ""
                    called = called or (line if verb == "watch" and verb in line and not line.lstrip().startswith("#") else "")
                    for option in re.findall(r"--[a-z-]+", called.split(" -- ")[0]):
                        self.assertIn(option, known, path)

    @needs("systemd-analyze")
    def test_service_of_an_engine(self):
        """systemd accepts the unit of a supervised engine"""
        unit = read("systemd/plimsoll-run@.service").replace("/usr/bin/plimsoll", plimtest.PROGRAM)
        unit = re.sub("(?m)^Documentation=.*\n", "", unit)
        with tempfile.TemporaryDirectory() as where:
            path = pathlib.Path(where) / "plimsoll-run@x.service"
            path.write_text(unit, encoding="utf-8")
            code, text = said_by("systemd-analyze", "verify", path)
            self.assertEqual((code, text.strip()), (0, ""))
        # A dynamic user's own home is "/", which it cannot write to; engines keep caches at home.
        state = re.search("(?m)^StateDirectory=(.*)$", unit)[1]
        self.assertIn(f"\nEnvironment=HOME=/var/lib/{state}\n", unit)

    def test_packages_of_the_image(self):
        """The image has every library that the program is linked with, and the build its packages"""
        text = read("container/Containerfile")
        libraries = re.findall(r"(lib[a-z0-9+_-]+)\.so", subprocess.run(
            ["objdump", "-p", plimtest.PROGRAM], capture_output=True, text=True, check=True).stdout)
        for name in set(libraries) - {"libc", "libm", "libgcc_s", "libpthread", "libdl"}:
            package = {"libz": "zlib1g", "libtinfo": "libtinfo6"}.get(name, name)
            self.assertIn(package, text)
        self.assertIn("USER plimsoll", text)
        self.assertNotRegex(text, r"curl .*\||wget|:latest")


@needs("dpkg-deb", "dpkg-shlibdeps", "lintian", "fakeroot")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.where = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-deb-"))
        cls.addClassCleanup(shutil.rmtree, cls.where, ignore_errors=True)
        result = subprocess.run([plimtest.ROOT / "tools" / "make_deb.sh", BUILD, cls.where], capture_output=True, text=True,
                                env=dict(os.environ, DEBEMAIL="someone@debian.org"), check=False)
        assert result.returncode == 0, result.stderr
        cls.deb = pathlib.Path(result.stdout.strip().splitlines()[-1])

    def test_lintian(self):
        """lintian finds nothing wrong with the package"""
        code, text = said_by("lintian", "--allow-root", "--fail-on", "error,warning", self.deb)
        self.assertEqual((code, text), (0, ""))

    def test_installed(self):
        """Unpacked by dpkg into an empty root it has its files, and the program runs from there"""
        root = self.where / "root"
        (root / "var/lib/dpkg/updates").mkdir(parents=True)
        (root / "var/lib/dpkg/info").mkdir()
        (root / "var/lib/dpkg/status").touch()
        code, text = said_by("fakeroot", "dpkg", f"--root={root}", "--force-not-root", "--force-depends",
                             "--force-script-chrootless", "--log=/dev/null", "--unpack", self.deb)
        self.assertEqual(code, 0, text)
        files = set(said_by("dpkg", f"--root={root}", "-L", "plimsoll")[1].split())
        for path in ("/usr/bin/plimsoll", "/lib/systemd/system/plimsoll.service", "/etc/plimsoll/plimsoll.conf",
                     "/usr/share/man/man1/plimsoll-watch.1.gz", "/usr/share/plimsoll/grafana/fleet.json",
                     "/usr/share/plimsoll/prometheus/rules.yml", "/usr/share/bash-completion/completions/plimsoll"):
            self.assertIn(path, files)
        self.assertEqual([f for f in files if f.startswith("/usr/local") or "__pycache__" in f], [])
        self.assertEqual([f for f in files if f.endswith(".so") and not f.startswith("/usr/lib/")], [])
        code, text = said_by(root / "usr/bin/plimsoll", "--version")
        self.assertEqual(code, 0, text)
        code, text = said_by(root / "usr/bin/plimsoll", "watch", "--check-settings", "--settings",
                             root / "etc/plimsoll/plimsoll.conf.dpkg-new")
        self.assertEqual(code, 0, text)
        code, text = said_by("fakeroot", "dpkg", f"--root={root}", "--force-not-root", "--force-script-chrootless",
                             "--log=/dev/null", "--purge", "--no-triggers", "--force-remove-reinstreq", "plimsoll")
        self.assertFalse((root / "usr/bin/plimsoll").exists(), text)

    def test_same_again(self):
        """The same build gives the same package"""
        again = self.where / "again"
        subprocess.run([plimtest.ROOT / "tools" / "make_deb.sh", BUILD, again], capture_output=True,
                       env=dict(os.environ, DEBEMAIL="someone@debian.org"), check=True)
        self.assertEqual((again / self.deb.name).read_bytes(), self.deb.read_bytes())


@unittest.skipIf(not ENV_PYTHON.exists(), "no .venv-deploy: tools/deploy_env.sh makes it")
class Yaml(unittest.TestCase):
    def test_kubernetes(self):
        """The manifests are what Kubernetes' schemas allow, in an old and a new release"""
        for release in ("1.28", "1.37"):
            code, text = said_by(ENV_PYTHON.parent / "kubernetes-validate", "--strict", "-k", release,
                                 DEPLOY / "kubernetes/plimsoll.yaml", DEPLOY / "kubernetes/engine.yaml")
            self.assertEqual(code, 0, text)
            self.assertNotIn("ERROR", text)

    def test_options_of_an_engine(self):
        """The containers of the engine's pod call the program with options that it has, and share one ledger"""
        deployment = yaml_of("kubernetes/engine.yaml")[0]
        containers = {c["name"]: c for c in deployment["spec"]["template"]["spec"]["containers"]}
        for name, verb in (("engine", "run"), ("gate", "gate")):
            words = containers[name]["command"]
            self.assertEqual(words[:2], ["plimsoll", verb])
            known = plimtest.run(verb, "--help").stdout.decode()
            own = words[2:words.index("--")] if "--" in words else words[2:]
            for word in own:
                self.assertIn(word.split("=")[0], known)
            self.assertIn("--ledger=/dev/shm/gate", own)
        self.assertEqual(containers["engine"]["env"][0]["value"], "/dev/shm/gate")

    def test_privileges(self):
        """The pod may do no more than it needs"""
        documents = {d["kind"]: d for d in yaml_of("kubernetes/plimsoll.yaml")}
        pod = documents["DaemonSet"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        security = container["securityContext"]
        self.assertFalse(pod["automountServiceAccountToken"])
        self.assertNotIn("hostNetwork", pod)
        self.assertFalse(security["privileged"] or security["allowPrivilegeEscalation"])
        self.assertTrue(security["readOnlyRootFilesystem"])
        self.assertEqual(security["capabilities"], {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]})
        writable = [m["name"] for m in container["volumeMounts"] if not m.get("readOnly")]
        self.assertEqual(writable, ["history", "tmp"])
        self.assertIn("memory", container["resources"]["limits"])

    def test_settings_of_the_pod(self):
        """The settings in the ConfigMap are good"""
        documents = {d["kind"]: d for d in yaml_of("kubernetes/plimsoll.yaml")}
        with monitor.folder() as where:
            (where / "c").write_text(documents["ConfigMap"]["data"]["plimsoll.conf"], encoding="utf-8")
            checked = plimtest.run("watch", "--check-settings", "--settings", where / "c")
            self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_netdata(self):
        """Each pattern of Netdata's job selects some metric"""
        job = yaml_of("netdata/plimsoll.conf")[0]["jobs"][0]
        for pattern in job["selector"]["allow"] + job["selector"]["deny"]:
            self.assertTrue(fnmatch.filter(documented(), pattern), pattern)


if __name__ == "__main__":
    plimtest.main()
