# SPDX-License-Identifier: Apache-2.0
"""What a request asks for and what an answer says, read from HTTP bodies of inference servers.

Requests: OpenAI's completions, chat, responses and embeddings; Anthropic's messages; /generate of vLLM, SGLang and TGI;
Ollama's /api/generate and /api/chat.
Anything odd is read as far as it makes sense: the server behind is the judge of its own requests. Pure functions.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, List, Optional, Tuple

# Tokens that a chat template puts around each message, and around all of them.
MESSAGE_TOKENS, CHAT_TOKENS = 6, 8
MOST = 1 << 31
TOKEN_BYTES = 16  # no tokenizer needs fewer tokens for a text than one for so many bytes of it


@dataclasses.dataclass
class Asked:
    """One request. text_bytes: UTF-8 bytes to be tokenised; tokens: those that the client counted itself."""

    text_bytes: int = 0
    tokens: int = 0
    parts: int = 0  # pictures, videos and sounds
    max_tokens: int = 0  # 0: not said
    samples: int = 1
    prompts: int = 1
    longest: int = 0  # tokens that the longest of several prompts has at least
    cut: int = 0  # the server cuts each prompt to so many tokens; 0: it does not
    logprob_rows: bool = False
    streams: bool = False
    priority: int = 0


def count(value: Any, most: int = MOST) -> int:
    """A whole number from 0 to `most`; anything else is 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        return 0
    return int(min(value, most))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _add_prompt(asked: Asked, prompt: Any) -> None:
    """A text, token ids, or a list of either."""
    if isinstance(prompt, str):
        asked.text_bytes += _bytes(prompt)
    elif isinstance(prompt, list) and prompt:
        if isinstance(prompt[0], int):
            asked.tokens += len(prompt)
        else:
            asked.prompts = len(prompt)
            for one in prompt:
                if isinstance(one, (str, list)) and not (isinstance(one, list) and one and isinstance(one[0], list)):
                    _add_prompt(asked, one)
                    ids = isinstance(one, list) and bool(one) and isinstance(one[0], int)
                    least = len(one) if ids else _bytes(one) // TOKEN_BYTES if isinstance(one, str) else 0
                    asked.longest = max(asked.longest, min(least, MOST - 1))
            asked.prompts = len(prompt)


def _add_content(asked: Asked, content: Any) -> None:
    """The content of a message: a text, or parts."""
    if isinstance(content, str):
        asked.text_bytes += _bytes(content)
        return
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        kind = str(part.get("type", ""))
        if "image" in kind or "video" in kind or "audio" in kind:
            asked.parts += 1
        for key in ("text", "content", "output"):
            if isinstance(part.get(key), (str, list)):
                _add_content(asked, part[key])


def _add_messages(asked: Asked, messages: Any) -> None:
    asked.tokens += CHAT_TOKENS
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            asked.tokens += MESSAGE_TOKENS
            _add_content(asked, message.get("content", message.get("output")))
            for key in ("tool_calls", "arguments"):
                if message.get(key):
                    asked.text_bytes += _bytes(json.dumps(message[key]))


def read_request(body: bytes) -> Optional[Asked]:
    """None: no JSON object, which the server will refuse itself."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    asked = Asked()
    settings = dict(data)
    for key in ("sampling_params", "parameters", "options"):  # SGLang, TGI, Ollama
        if isinstance(data.get(key), dict):
            settings.update(data[key])
    for key in ("max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict", "max_tokens"):
        if settings.get(key) is not None:
            asked.max_tokens = count(settings[key])
            break
    asked.samples = max(1, count(settings.get("n"), 1024), count(settings.get("best_of"), 1024))
    asked.streams = data.get("stream") is True
    cut = settings.get("truncate_prompt_tokens", settings.get("truncate"))  # vLLM, TGI
    asked.cut = MOST if cut == -1 else count(cut)  # -1: to the model's length
    asked.logprob_rows = settings.get("prompt_logprobs") is not None or (data.get("echo") is True
                                                                        and data.get("logprobs") is not None)
    priority = data.get("priority")
    asked.priority = priority if isinstance(priority, int) and abs(priority) < 1 << 31 else 0
    if "messages" in data:
        _add_messages(asked, data["messages"])
        _add_content(asked, data.get("system"))
    elif "input" in data and isinstance(data["input"], list) and data["input"] and isinstance(data["input"][0], dict):
        _add_messages(asked, data["input"])
    else:
        for key in ("prompt", "input", "text", "input_ids", "inputs", "text_1", "text_2", "query", "documents"):
            if data.get(key) is not None:
                _add_prompt(asked, data[key])
                if key == "prompt":
                    break
    if isinstance(data.get("instructions"), str):
        asked.text_bytes += _bytes(data["instructions"])
    if data.get("tools"):
        asked.text_bytes += _bytes(json.dumps(data["tools"]))
    return asked


@dataclasses.dataclass
class Answered:
    """What the end of an answer says of it; 0 and "": not said."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""


_PROMPT = re.compile(rb'"(?:prompt_tokens|input_tokens|prompt_eval_count)"\s*:\s*(\d{1,10})')
_OUTPUT = re.compile(rb'"(?:completion_tokens|output_tokens|generated_tokens|eval_count)"\s*:\s*(\d{1,10})')
_FINISH = re.compile(rb'"(?:(?:finish_reason|stop_reason|done_reason)"\s*:\s*(?:\{\s*"type"\s*:\s*)?|'
                     rb'incomplete_details"\s*:\s*\{\s*"reason"\s*:\s*)"(\w{1,24})"')
_WANTED = re.compile(rb"[Tt]ried to allocate ([0-9.]{1,12}) ([KMGT])iB")
_MEMORY = re.compile(rb"out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY", re.IGNORECASE)


def _last(pattern: "re.Pattern[bytes]", tail: bytes) -> bytes:
    found = pattern.findall(tail)
    return bytes(found[-1]) if found else b""


def read_answer(tail: bytes) -> Answered:
    """The last bytes of a body: a whole JSON answer, or the last events of a stream."""
    return Answered(int(_last(_PROMPT, tail) or 0), int(_last(_OUTPUT, tail) or 0),
                    _last(_FINISH, tail).decode())


def read_failure(tail: bytes) -> Tuple[bool, int]:
    """Whether an error says that memory ran out, and the bytes of the allocation that failed (0: not said)."""
    if not _MEMORY.search(tail):
        return False, 0
    wanted = _WANTED.search(tail)
    if not wanted:
        return True, 0
    try:
        return True, int(float(wanted[1]) * (1 << 10 * (b"KMGT".index(wanted[2]) + 1)))
    except ValueError:
        return True, 0


class TokenRate:
    """Tokens for each byte of text, learned from answers: the mean and how far single requests are from it.

    A request is counted at mean + one deviation: being wrong downwards lets too much in.
    Half of what it knows is from the last 45 requests.
    """

    START, SPREAD, WEIGHT = 0.30, 0.10, 1 / 64  # English is near 0.22, code and JSON 0.30, Chinese 0.4

    def __init__(self) -> None:
        self.mean, self.variance, self.seen = self.START, self.SPREAD ** 2, 0

    def tokens(self, asked: Asked) -> int:
        """Of all prompts together."""
        rate = min(1.0, self.mean + self.variance ** 0.5)  # a byte is at least a token's worth
        return min(MOST, asked.tokens + int(asked.text_bytes * rate) + 1)

    def least(self, asked: Asked) -> int:
        """Fewer tokens than these all prompts together cannot have."""
        return asked.tokens + asked.text_bytes // TOKEN_BYTES

    def learn(self, asked: Asked, prompt_tokens: int) -> None:
        if asked.text_bytes < 64 or asked.parts or asked.cut or prompt_tokens <= asked.tokens:
            return
        rate = (prompt_tokens - asked.tokens) / asked.text_bytes
        if rate > 1.5:  # somebody else's text: a template with a long system prompt
            rate = 1.5
        self.seen += 1
        weight = max(self.WEIGHT, 1 / (self.seen + 1))
        off = rate - self.mean
        self.mean += weight * off
        self.variance = max(1e-6, (1 - weight) * (self.variance + weight * off * off))


class EventRate:
    """Tokens for each event of a stream, learned from streams whose length became known: a server that is busy puts
    several tokens into one event. Half of what it knows is from the last 11 streams: load changes quickly."""

    WEIGHT = 1 / 16

    def __init__(self) -> None:
        self.mean = 1.0

    def tokens(self, events: int) -> int:
        return int(events * self.mean + 0.5)

    def learn(self, tokens: int, events: int) -> None:
        if events >= 4 and tokens > 0:
            rate = min(64.0, max(0.5, tokens / events))
            self.mean += self.WEIGHT * (rate - self.mean)


def split_events(chunk: bytes) -> int:
    """Events of a stream in one piece of it."""
    return chunk.count(b"data:")


def tail_of(pieces: List[bytes], room: int = 8192) -> bytes:
    return b"".join(pieces)[-room:]


def texts(body: bytes) -> List[str]:
    """Every text of a request that is tokenised: all strings of its prompts and messages."""
    data = json.loads(body)
    out: List[str] = []

    def gather(value: Any, depth: int) -> None:
        if isinstance(value, str):
            out.append(value)
        elif isinstance(value, list) and depth < 8:
            for one in value:
                gather(one, depth + 1)
        elif isinstance(value, dict):
            for key in ("content", "text", "output", "arguments", "function", "tool_calls"):
                gather(value.get(key), depth + 1)

    for key in ("messages", "prompt", "input", "text", "inputs", "instructions", "system"):
        gather(data.get(key), 0)
    if data.get("tools"):
        out.append(json.dumps(data["tools"]))
    return out
