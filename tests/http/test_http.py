# SPDX-License-Identifier: Apache-2.0
"""The shared HTTP server from outside: who may ask, what is answered, and clients that misbehave."""

import base64
import gzip
import http.client
import json
import os
import pathlib
import re
import resource
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

TOY = os.environ["HTTP_TOY"]
TOKEN = "a-token-of-24-characters"
BODY = 100_000


class Server:
    """A toy daemon in a folder of its own, until the end of the test."""

    def __init__(self, test, *arguments, listen=("0",)):
        self.folder = tempfile.TemporaryDirectory()
        test.addCleanup(self.folder.cleanup)
        words = [a.replace("DIR", self.folder.name) for a in (*arguments, *listen)]
        if any("token=" in w for w in words):
            self.write("token", TOKEN + "\n")
        if any("certificate=" in w for w in words):
            self.certificate("one")
        self.process = subprocess.Popen([TOY, str(BODY), *words], stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.stop)
        self.urls = []
        for line in self.process.stdout:
            if line == "ready\n":
                break
            self.urls.append(line.strip())
        ports = [re.search(r":(\d+)/$", u) for u in self.urls]
        self.port = next((int(p.group(1)) for p in ports if p), None)

    def write(self, name, text):
        pathlib.Path(self.folder.name, name).write_text(text, encoding="utf-8")

    def certificate(self, name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", f"{self.folder.name}/key.pem", "-out", f"{self.folder.name}/cert.pem"],
                       check=True, capture_output=True)

    def reload(self):
        self.process.send_signal(signal.SIGHUP)
        return self.process.stdout.readline().strip()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(plimtest.PATIENCE)
        self.process.stdout.close()
        if code not in (0, 64, 65):
            raise AssertionError(f"the daemon ended with {code}")

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=plimtest.PATIENCE)
        names = {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(method, path, body=body, headers=names)
        answer = connection.getresponse()
        answer.text = answer.read()
        connection.close()
        return answer

    def raw(self, data):
        """What comes back for these bytes until the server closes or says no more."""
        with socket.create_connection(("127.0.0.1", self.port), plimtest.PATIENCE) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has heard enough
            return read_all(s)

    def counts(self):
        text = self.ask("GET", "/counts").text.decode()
        return {k: int(v) for k, v in (line.split() for line in text.splitlines())}


def read_all(s):
    data = b""
    try:
        while piece := s.recv(65536):
            data += piece
    except (ConnectionResetError, TimeoutError):
        pass
    return data


class Answers(unittest.TestCase):
    def setUp(self):
        self.s = Server(self)

    def test_a_published_body_comes_whole_plain_and_compressed(self):
        plain = self.s.ask("GET", "/fast")
        packed = self.s.ask("GET", "/fast", Accept_Encoding="gzip;q=0.5, br")
        self.assertEqual(plain.getheader("Content-Encoding"), None)
        self.assertEqual(packed.getheader("Content-Encoding"), "gzip")
        self.assertEqual(gzip.decompress(packed.text), plain.text)
        self.assertLess(len(packed.text), len(plain.text) // 10)
        self.assertNotEqual(plain.getheader("ETag"), packed.getheader("ETag"))

    def test_who_has_the_body_is_not_sent_it_again(self):
        tag = self.s.ask("GET", "/fast").getheader("ETag")
        again = self.s.ask("GET", "/fast", If_None_Match=f'"x", {tag}')
        self.assertEqual((again.status, again.text), (304, b""))

    def test_head_has_the_headers_without_the_body(self):
        head, get = self.s.ask("HEAD", "/fast"), self.s.ask("GET", "/fast")
        self.assertEqual((head.status, head.text), (200, b""))
        self.assertEqual(head.getheader("Content-Length"), str(len(get.text)))

    def test_answers_may_do_nothing_in_a_browser(self):
        answer = self.s.ask("GET", "/fast")
        self.assertIn("default-src 'none'", answer.getheader("Content-Security-Policy"))
        self.assertEqual(answer.getheader("X-Content-Type-Options"), "nosniff")
        self.assertIsNone(answer.getheader("Access-Control-Allow-Origin"))

    def test_failures_are_json_with_the_code_of_their_status(self):
        for path, code, status in [("/nothing", 404, "E_NOTFOUND"), ("/slow?ms=9999", 422, "E_RANGE"),
                                   ("/slow?ms=-1", 400, "E_USAGE"), ("/item//part", 404, "E_NOTFOUND")]:
            answer = self.s.ask("GET", path)
            error = json.loads(answer.text)["error"]
            self.assertEqual((answer.status, error["code"], error["status"]), (code, code, status), path)

    def test_a_known_path_with_another_method_is_405(self):
        self.assertEqual(self.s.ask("DELETE", "/fast").status, 405)
        self.assertEqual(self.s.ask("GET", "/echo").status, 405)

    def test_one_segment_of_the_path_is_a_parameter(self):
        self.assertEqual(self.s.ask("GET", "/item/a%20b/part").text, b"a b")
        self.assertEqual(self.s.ask("GET", "/item/a/b/part").status, 404)

    def test_a_file_comes_whole_or_in_ranges_under_a_harmless_name(self):
        whole = pathlib.Path(TOY).read_bytes()
        answer = self.s.ask("GET", "/file")
        self.assertEqual(answer.text, whole)
        self.assertEqual(answer.getheader("Content-Disposition"), 'attachment; filename="a__toy___.bin"')
        part = self.s.ask("GET", "/file", Range="bytes=10-19")
        self.assertEqual((part.status, part.text), (206, whole[10:20]))
        self.assertEqual(part.getheader("Content-Range"), f"bytes 10-19/{len(whole)}")
        self.assertEqual(self.s.ask("GET", "/file", Range="bytes=-5").text, whole[-5:])
        self.assertEqual(self.s.ask("GET", "/file", Range=f"bytes={len(whole)}-").status, 416)

    def test_pipelined_requests_are_answered_in_order(self):
        one = b"GET /item/%d/part HTTP/1.1\r\nHost: localhost\r\nConnection: %s\r\n\r\n"
        data = self.s.raw(b"".join(one % (i, b"close" if i == 19 else b"keep-alive") for i in range(20)))
        self.assertEqual(re.findall(rb"\r\n\r\n(\d+)", data), [b"%d" % i for i in range(20)])

    def test_a_slow_query_does_not_hold_up_a_fast_one(self):
        waiting = threading.Thread(target=self.s.ask, args=("GET", "/held"))
        waiting.start()
        plimtest.wait_for("the slow one is at work", lambda: self.s.counts()["held"])
        for _ in range(20):
            self.assertEqual(self.s.ask("GET", "/fast").status, 200)
        self.assertEqual(self.s.counts()["held"], 1)
        self.s.ask("GET", "/free")
        waiting.join()


class Access(unittest.TestCase):
    def test_changing_something_needs_the_token_also_on_this_machine(self):
        s = Server(self, "token=DIR/token")
        self.assertEqual(s.ask("POST", "/echo", b"hi").status, 401)
        self.assertEqual(s.ask("POST", "/echo", b"hi", Authorization="Bearer " + TOKEN[:-1]).status, 401)
        self.assertEqual(s.ask("POST", "/echo", b"hi", Authorization="Bearer " + TOKEN).text, b"hi")
        basic = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
        self.assertEqual(s.ask("POST", "/echo", b"hi", Authorization="Basic " + basic).text, b"hi")

    def test_without_a_token_file_nobody_changes_anything_by_address(self):
        s = Server(self)
        for value in ("Bearer ", "Bearer x", "Basic Og==", "Basic", ""):
            self.assertEqual(s.ask("POST", "/echo", b"hi", Authorization=value).status, 401)

    def test_a_name_that_is_not_ours_is_refused_on_the_loopback(self):
        s = Server(self, "token=DIR/token")
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", ""):
            self.assertEqual(s.ask("GET", "/fast", Host=host).status, 403, host)
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:9"):
            self.assertEqual(s.ask("GET", "/fast", Host=host).status, 200, host)
        self.assertEqual(s.ask("GET", "/fast", Host="gpu7.example", Authorization="Bearer " + TOKEN).status, 200)

    def test_what_a_proxy_passes_on_is_not_local(self):
        s = Server(self, "token=DIR/token")
        self.assertEqual(s.ask("GET", "/fast", X_Forwarded_For="10.0.0.9").status, 401)
        self.assertEqual(s.ask("GET", "/fast", Forwarded="for=10.0.0.9").status, 401)
        self.assertEqual(s.ask("GET", "/open", X_Forwarded_For="10.0.0.9").status, 200)

    def test_other_pages_cannot_change_anything_with_a_cookie_of_ours(self):
        s = Server(self, "token=DIR/token")
        login = s.ask("POST", "/login", Authorization="Bearer " + TOKEN)
        cookie = login.getheader("Set-Cookie")
        self.assertEqual(login.status, 204)
        self.assertIn("HttpOnly", cookie)
        self.assertIn("SameSite=Strict", cookie)
        self.assertNotIn(TOKEN, cookie)
        cookie, ours = cookie.split(";")[0], f"http://127.0.0.1:{s.port}"
        self.assertEqual(s.ask("POST", "/echo", b"1", Cookie=cookie, Origin=ours).status, 200)
        for origin in ("http://evil.example", "null", ours + "0", ours + ".evil.example"):
            self.assertEqual(s.ask("POST", "/echo", b"1", Cookie=cookie, Origin=origin).status, 403, origin)
        self.assertEqual(s.ask("POST", "/echo", b"1", Cookie=cookie).status, 403)
        self.assertEqual(s.ask("POST", "/echo", b"1", Cookie=cookie, Sec_Fetch_Site="same-origin").status, 200)
        self.assertEqual(s.ask("POST", "/logout", Cookie=cookie, Origin=ours).status, 204)
        self.assertEqual(s.ask("POST", "/echo", b"1", Cookie=cookie, Origin=ours).status, 401)

    def test_what_others_can_reach_does_not_start_without_a_token(self):
        for listen in (":0", "0.0.0.0:0", "[::]:0"):
            s = Server(self, listen=(listen,))
            self.assertEqual(s.process.wait(plimtest.PATIENCE), 64)
            self.assertIn("needs a token", "".join(s.urls))

    def test_on_all_addresses_the_loopback_needs_the_token_too(self):
        s = Server(self, "token=DIR/token", listen=(":0",))
        self.assertEqual(s.ask("GET", "/fast").status, 401)
        self.assertEqual(s.ask("GET", "/open").status, 200)
        self.assertEqual(s.ask("GET", "/fast", Authorization="Bearer " + TOKEN).status, 200)

    def test_a_token_for_all_holds_on_the_loopback(self):
        s = Server(self, "token=DIR/token", "all=1")
        self.assertEqual(s.ask("GET", "/fast").status, 401)
        self.assertEqual(s.ask("GET", "/fast", Authorization="Bearer " + TOKEN).status, 200)

    def test_a_new_token_counts_after_a_reload_and_ends_logins(self):
        s = Server(self, "token=DIR/token")
        cookie = s.ask("POST", "/login", Authorization="Bearer " + TOKEN).getheader("Set-Cookie").split(";")[0]
        s.write("token", "short")
        self.assertIn("one word of 16", s.reload())
        self.assertEqual(s.ask("POST", "/echo", b"1", Authorization="Bearer " + TOKEN).status, 200)
        s.write("token", "another-token-of-this-server")
        self.assertEqual(s.reload(), "reloaded")
        self.assertEqual(s.ask("POST", "/echo", b"1", Authorization="Bearer " + TOKEN).status, 401)
        self.assertEqual(s.ask("POST", "/echo", b"1", Cookie=cookie, Sec_Fetch_Site="same-origin").status, 401)
        self.assertEqual(s.ask("POST", "/echo", b"1", Authorization="Bearer another-token-of-this-server").status, 200)

    def test_the_owner_may_change_things_over_the_unix_socket(self):
        s = Server(self, listen=("unix:DIR/sock",))
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(s.folder.name + "/sock")
            c.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            self.assertTrue(read_all(c).endswith(b"\r\n\r\nhi"))
        self.assertEqual(os.stat(s.folder.name + "/sock").st_mode & 0o777, 0o660)

    def test_a_leftover_socket_is_replaced_and_one_in_use_is_not(self):
        s = Server(self, listen=("unix:DIR/sock",))
        path = s.folder.name + "/sock"
        second = Server(self, listen=("unix:" + path,))
        self.assertEqual(second.process.wait(plimtest.PATIENCE), 71)
        second.process.returncode = 0
        s.process.kill()
        s.process.wait()
        s.process.returncode = 0
        third = Server(self, listen=("unix:" + path,))
        self.assertEqual(third.urls, ["unix:" + path])


class Tls(unittest.TestCase):
    def peer(self, s):
        context = ssl.create_default_context(cafile=s.folder.name + "/cert.pem")
        with socket.create_connection(("127.0.0.1", s.port), plimtest.PATIENCE) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as c:
                c.sendall(b"GET /fast HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                self.assertIn(b"200 OK", read_all(c)[:20])
                return dict(x[0] for x in c.getpeercert()["subject"])["commonName"], c.version()

    def test_answers_come_over_tls_and_a_new_certificate_after_a_reload(self):
        s = Server(self, "certificate=DIR/cert.pem", "key=DIR/key.pem")
        self.assertTrue(s.urls[0].startswith("https://"))
        self.assertEqual(self.peer(s), ("one", "TLSv1.3"))
        for name in ("two", "three"):
            s.certificate(name)
            self.assertEqual(s.reload(), "reloaded")
            self.assertEqual(self.peer(s)[0], name)

    def test_a_key_that_does_not_fit_leaves_everything_as_it_was(self):
        s = Server(self, "certificate=DIR/cert.pem", "key=DIR/key.pem")
        kept = pathlib.Path(s.folder.name, "cert.pem").read_text()
        s.write("key.pem", "no key")
        self.assertIn("no certificate and its key", s.reload())
        s.write("cert.pem", kept)
        self.assertEqual(self.peer(s)[0], "one")

    def test_plain_bytes_on_a_tls_port_get_nothing(self):
        s = Server(self, "certificate=DIR/cert.pem", "key=DIR/key.pem")
        self.assertNotIn(b"HTTP/1.1 200", s.raw(b"GET /fast HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        self.assertEqual(self.peer(s)[0], "one")


class Events(unittest.TestCase):
    def follow(self, s, **headers):
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=plimtest.PATIENCE)
        c.request("GET", "/live", headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = c.getresponse()
        self.addCleanup(c.close)
        return answer

    @staticmethod
    def ids(answer, n):
        found = []
        while len(found) < n:
            line = answer.readline().decode()
            if line.startswith("id: "):
                found.append(int(line[4:]))
        return found

    def test_events_come_in_order_and_each_once(self):
        answer = self.follow(Server(self))
        self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
        ids = self.ids(answer, 6)
        self.assertEqual(ids, list(range(ids[0], ids[0] + 6)))

    def test_a_hundred_tabs_all_get_the_newest(self):
        s = Server(self)
        tabs = [self.follow(s) for _ in range(100)]
        self.assertEqual(s.counts()["readers"], 100)
        newest = [self.ids(tab, 3)[-1] for tab in tabs]
        self.assertTrue(all(newest))
        self.assertEqual(s.ask("GET", "/fast").status, 200)

    def test_a_tab_that_does_not_read_misses_events_and_holds_up_nobody(self):
        s = Server(self)
        with socket.create_connection(("127.0.0.1", s.port)) as lazy:
            lazy.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            ids = self.ids(self.follow(s), 5)
            self.assertEqual(len(ids), 5)

    def test_readers_that_leave_are_noticed(self):
        s = Server(self)
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                c.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                c.recv(1000)
        plimtest.wait_for("nobody reads", lambda: s.counts()["readers"] == 0)

    def test_the_daemon_ends_while_tabs_and_queries_are_open(self):
        s = Server(self)
        tabs = [self.follow(s) for _ in range(10)]

        def query():
            try:
                s.ask("GET", "/slow?ms=200")
            except (OSError, http.client.HTTPException):
                pass  # it came too late

        jobs = [threading.Thread(target=query) for _ in range(3)]
        for job in jobs:
            job.start()
        self.ids(tabs[0], 1)
        s.process.terminate()
        self.assertEqual(s.process.wait(plimtest.PATIENCE), 0)
        for job in jobs:
            job.join()


class Hostile(unittest.TestCase):
    def test_a_request_that_trickles_is_ended_and_others_are_served(self):
        s = Server(self, "patience=2")
        slow = [socket.create_connection(("127.0.0.1", s.port), plimtest.PATIENCE) for _ in range(50)]
        for c in slow:
            c.sendall(b"GET /fast HTTP/1.1\r\nHost: localhost\r\nX: ")
        began = time.monotonic()
        ended = set()
        while len(ended) < len(slow) and time.monotonic() < began + plimtest.PATIENCE:
            for i, c in enumerate(slow):
                try:
                    c.sendall(b"x")
                except OSError:
                    ended.add(i)
            self.assertEqual(s.ask("GET", "/fast").status, 200)
            time.sleep(0.1)
        self.assertEqual(len(ended), len(slow))
        self.assertGreaterEqual(s.counts()["timeouts_total"], 50)
        for c in slow:
            c.close()

    def test_a_body_that_trickles_is_ended_too(self):
        s = Server(self, "token=DIR/token", "patience=1")
        with socket.create_connection(("127.0.0.1", s.port), plimtest.PATIENCE) as c:
            c.sendall(f"POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
                      "Content-Length: 900\r\n\r\nx".encode())
            self.assertNotIn(b"200", read_all(c))

    def test_a_body_that_is_too_large_is_refused_with_or_without_its_length(self):
        s = Server(self, "token=DIR/token")
        auth = {"Authorization": "Bearer " + TOKEN}
        self.assertEqual(s.ask("POST", "/echo", b"x" * 1000, **auth).status, 200)
        self.assertEqual(s.ask("POST", "/echo", b"x" * 1001, **auth).status, 413)
        chunks = b"1\r\nx\r\n" * 1001 + b"0\r\n\r\n"
        head = f"POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n" \
               "Connection: close"
        self.assertIn(b" 413 ", s.raw(head.encode() + b"\r\n\r\n" + chunks)[:20])

    def test_malformed_requests_get_an_error_or_nothing_and_the_server_lives(self):
        s = Server(self, "patience=1")
        big = b"GET /fast HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000 + b"\r\n\r\n"
        many = b"GET /fast HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n"
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"\r\n" * 5000, b"GET /%00%0d%0a HTTP/1.1\r\nHost: localhost\r\n\r\n", big, many,
                     b"GET /fast HTTP/1.1\r\n\r\n", b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
                     b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                     b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
                     b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
                     b"GET /fast?" + b"&a=" * 8000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with self.subTest(data[:40]):
                self.assertFalse(s.raw(data).startswith(b"HTTP/1.1 2"), data[:60])
        self.assertEqual(s.ask("GET", "/fast").status, 200)

    def test_ten_thousand_scrapes_at_once_are_all_answered(self):
        s = Server(self)
        wanted = int(os.environ.get("PLIMSOLL_SCRAPES", "10000"))
        self.assertEqual(scrape(s.port, wanted), wanted)
        self.assertGreaterEqual(s.counts()["requests_ok_total"], wanted)


def scrape(port, wanted):
    """Open connections as fast as descriptors allow, all asking; count the whole answers."""
    at_once = max(10, min(800, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100))
    request = b"GET /fast HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    sel = selectors.DefaultSelector()
    got, begun, whole = {}, 0, 0
    until = time.monotonic() + 10 * plimtest.PATIENCE
    while whole < wanted and time.monotonic() < until:
        while begun < wanted and len(got) < at_once:
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(("127.0.0.1", port))
            got[c] = b""
            sel.register(c, selectors.EVENT_WRITE)
            begun += 1
        for key, mask in sel.select(1):
            c = key.fileobj
            if mask & selectors.EVENT_WRITE:
                c.send(request)
                sel.modify(c, selectors.EVENT_READ)
                continue
            piece = c.recv(65536)
            got[c] += piece
            if not piece:
                head, _, body = got.pop(c).partition(b"\r\n\r\n")
                whole += head.startswith(b"HTTP/1.1 200") and len(gzip.decompress(body)) > BODY - 58
                sel.unregister(c)
                c.close()
    return whole


if __name__ == "__main__":
    plimtest.main()
