#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page for people in a real browser, on a daemon with 64 models and 1,000 graphs, and what its viewers cost.

  tests/browser/page.py [--seconds N] [--seed S] [--pictures DIRECTORY]

Needs Debian's chromium; pngquant makes the pictures smaller. Each line is "ok", "not ok" or "skip"; the last one is the sum. --seconds: how long ten viewers are measured.
--pictures writes the pictures of docs/operations.md: three widths, light and dark.
"""
import argparse
import pathlib
import resource
import socket
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "rpc")]
ARGUMENTS, sys.argv[1:] = sys.argv[1:], []  # the harness reads its own
from harness import *  # noqa: E402,F403
import chromium  # noqa: E402

MODELS, GRAPHS, VIEWERS = 64, 1000, 10
WIDTHS = {"phone": (360, 780), "desk": (1280, 1000), "wall": (2560, 1440)}
EVIL = "<img src=x onerror=document.title='owned'>"
WARM = 25  # seconds of load before the browser looks, so that charts have something to show
COST_LIMIT = 1.0  # percent of a CPU that the ten viewers may cost


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def graph_text(i):
    name = EVIL if i == 0 else f"worker{i % 7}.stage{i:04}"
    name = name.replace('"', '\\"')
    return (f'npugraph 1\ngraph "{name}" {{\n  sym B 1..16 buckets 4, 16\n  input %x : f32[B,{8 + i}]\n  %a = aten.silu(%x)\n  %b = aten.mul.Tensor(%a, %x)\n'
            f'  %c = aten.add.Tensor(%b, %a)\n  return "<b>y</b>" = %c\n}}\n')


class Scene:
    """A daemon that has much to show, and clients that keep it busy."""

    def __init__(self, port, *options):
        self.port, self.options, self.stopping, self.threads, self.clients = port, options, threading.Event(), [], []
        self.start()

    def start(self):
        model = SOURCE / "examples" / "model"
        self.daemon = Daemon(f"--models-dir={model}", f"--stats-listen=127.0.0.1:{self.port}", "--stats-graphs=yes", "--device-memory=2G", *self.options)
        env = {**os.environ, "NPUGRAPH_ADDRESS": self.daemon.address}
        for i in range(MODELS):
            name = f"qwen-{i:02}" if i else "bible"
            subprocess.run([CTL, "load", model, "--name", name, *(["--max-context", "1024", "--max-batch", "16"] if i == 0 else
                                                                 ["--max-context", "64", "--max-batch", "2"])], env=env, check=True, stdout=subprocess.DEVNULL)
        client = Client(self.daemon)
        self.clients.append(client)
        ids = [client.register(graph_text(i)).graph for i in range(GRAPHS)]
        self.threads = [threading.Thread(target=self.replay, args=(client, ids)), *(threading.Thread(target=self.generate, args=(env, i)) for i in range(2))]
        for thread in self.threads:
            thread.start()

    def replay(self, client, ids):
        n = 0
        while not self.stopping.is_set():
            n += 1
            i = (n // 150 + n % 9) % GRAPHS  # another one now and then, which is captured
            rows = 1 + n % 16
            with contextlib.suppress(grpc.RpcError):
                if n % 40:
                    client.replay(ids[i], [bytes(4 * rows * (8 + i))], symbols=[rows])
                else:
                    client.replay(ids[0], [bytes(4 * 99 * 8)], symbols=[99])  # refused, which is an event
            self.stopping.wait(0.02)

    def generate(self, env, worker):
        while not self.stopping.is_set():
            subprocess.run([CTL, "generate", "bible" if worker else "qwen-07", "--prompt", "In the beginning God created", "--tokens", "700" if worker else "40"],
                           env=env, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.stopping.wait(0.4 if worker else 0.1)

    def rest(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        self.stopping.clear()

    def stop(self):
        self.rest()
        for client in self.clients:
            client.close()
        self.daemon.stop()

    def url(self, view=""):
        return f"http://127.0.0.1:{self.port}/#/{view}"


def show(page, scene, view):
    page.open("about:blank")
    page.open(scene.url(view))
    page.until("the page has numbers", "document.getElementById('facts') && document.getElementById('facts').textContent")


SHOWN_ROWS = "[...document.querySelectorAll('#graphs tbody tr')].filter((r) => r.offsetParent).length"


# ---- what holds --------------------------------------------------------------------------------------------------------

def nothing_overflows(page, scene):
    number = next(g["number"] for g in scene.daemon.stats()["graphs"] if g["name"] == "bible.decode")
    for width, height in WIDTHS.values():
        page.size(width, height)
        show(page, scene, f"graphs/{number}")
        page.until("the graph is open", "document.querySelectorAll('#graph .map rect').length > 10")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"a graph is {wide} pixels wider than {width}"
        for view in ("overview", "devices", "models", "graphs", "identities", "events"):
            show(page, scene, view)
            page.until(f"{view} is shown", f"!document.getElementById('{view}').hidden && document.getElementById('{view}').textContent.length > 40")
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{view} is {wide} pixels wider than {width}"


def names_stay_text(page, scene):
    page.size(*WIDTHS["desk"])
    for view in ("graphs", "events", "overview"):
        show(page, scene, view)
        page.evaluate("document.getElementById('search').value = 'onerror'; document.getElementById('search').dispatchEvent(new Event('input'))")
        page.until(f"{view} finds the graph", "document.body.innerText.includes('<img src=x onerror=')")
    show(page, scene, "graphs/" + str(next(g["number"] for g in scene.daemon.stats()["graphs"] if g["name"] == EVIL)))
    page.until("the graph is open", "!document.getElementById('graph').hidden && document.getElementById('graph').innerText.includes('<img src=x onerror=')")
    assert page.evaluate("document.querySelectorAll('img, b b').length + document.title") == "0npugraphd"


def policy_refuses_scripts(page, scene):
    show(page, scene, "overview")
    said = page.evaluate("(() => { try { const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s); } catch (e) {} "
                         "try { document.body.insertAdjacentHTML('beforeend', '<i onclick=1>'); return 'taken'; } catch (e) { return String(window.owned); } })()")
    assert said == "undefined", said


def much_is_quick(page, scene):
    page.size(*WIDTHS["desk"])
    show(page, scene, "graphs")
    page.until("graphs are listed", f"{SHOWN_ROWS} === 50")
    for view, most in (("graphs", 120), ("models", 120), ("overview", 120)):
        page.evaluate(f"location.hash = '/{view}'")
        time.sleep(0.3)
        took = page.evaluate("(() => { const t = performance.now(); for (let i = 0; i < 5; i++) draw(); return (performance.now() - t) / 5; })()")
        print(f"# {view} is drawn in {took:.1f} ms", flush=True)
        assert took < most, f"{view}: {took:.1f} ms"


def keys_work(page, scene):
    page.size(*WIDTHS["desk"])
    show(page, scene, "overview")
    page.key("4", "4")
    page.until("4 shows graphs", f"{SHOWN_ROWS} === 50")
    page.key("/", "/")
    for letter in "stage0007":
        page.key(letter, letter)
    page.until("a search finds one", f"{SHOWN_ROWS} === 1")
    page.evaluate("document.querySelector('#graphs tbody tr').focus()")
    page.key("Enter", "\r")
    page.until("Enter opens it", "location.hash.startsWith('#/graphs/') && document.getElementById('graph').innerText.includes('stage0007')")
    page.key("Escape")
    page.key("Escape")
    page.until("Escape closes it", f"location.hash === '#/graphs' && {SHOWN_ROWS} === 50")
    page.key("1", "1")
    for _ in range(2):
        page.key("r", "r")
    page.until("r takes the longest range", "document.querySelectorAll('#ranges button')[2].getAttribute('aria-pressed') === 'true'")
    page.key("r", "r")
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.key("t", "t")
    assert page.evaluate("document.documentElement.dataset.theme") != theme
    page.key("t", "t")
    page.key("?", "?")
    assert page.evaluate("document.getElementById('help').open")
    page.evaluate("document.getElementById('help').close()")


def nothing_jumps(page, scene):
    """Places of all that is not inside of a picture, at intervals while numbers change."""
    page.size(*WIDTHS["desk"])
    places = ("JSON.stringify([...document.querySelectorAll('header *, .tile, .tile dt, .chart, .frame, .lane, h2, th')].filter((e) => e.offsetParent && !e.closest('svg') && e.id !== 'facts')"
              ".map((e) => { const b = e.getBoundingClientRect(); return [Math.round(b.left), Math.round(b.top + scrollY)]; }))")
    for view in ("overview", "models", "graphs"):
        show(page, scene, view)
        time.sleep(2)
        seen = set()
        for _ in range(5):
            seen.add(page.evaluate(places))
            time.sleep(1.1)
        assert len(seen) == 1, f"{view} moved"


def away_and_back(page, scene):
    page.size(*WIDTHS["desk"])
    show(page, scene, "overview")
    scene.rest()
    pid = page.evaluate("state.pid")
    scene.daemon.kill()
    page.until("the page says that nothing answers", "!document.getElementById('away').hidden && document.title.startsWith('no answer')")
    assert page.evaluate("document.querySelectorAll('.tile').length") == 6, "the last numbers are gone"
    again = Daemon(f"--stats-listen=127.0.0.1:{scene.port}", "--stats-graphs=yes")
    page.until("the page goes on", f"document.getElementById('away').hidden && state.pid !== {pid} && live().time.length > 0 && live().time.length < 60")
    page.evaluate("location.hash = '/graphs'")
    page.until("an empty table says what to do", "document.getElementById('graphs').innerText.includes('No graph is registered')")
    again.stop()


def names_are_hidden(page, scene):
    with Daemon("--stats-names=no", "--stats-graphs=yes", f"--stats-listen=127.0.0.1:{free_port()}") as d, Client(d) as c:
        c.register(graph_text(0))
        address = d.log().split("statistics on http://")[1].split("/")[0]
        for view in ("models", "graphs", "identities", "events"):
            page.open("about:blank")
            page.open(f"http://{address}/#/{view}")
            page.until(f"{view} says why it is empty", f"document.getElementById('{view}') && document.getElementById('{view}').innerText.includes('stats-names = yes')")
            assert not page.evaluate("document.body.innerText.includes('onerror')")
        page.open("about:blank")


TESTS = [nothing_overflows, names_stay_text, policy_refuses_scripts, much_is_quick, keys_work, nothing_jumps, names_are_hidden, away_and_back]


# ---- what viewers cost -----------------------------------------------------------------------------------------------------

def view(port, seconds):
    """Asks what the page asks, as often, from a process of its own."""
    end, beat, since = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        for path in [*(["/stats.json?max_age=2"] if beat % 3 == 0 else []), f"/history.json?step=1&since={since}"]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", path)
            answer = json.loads(connection.getresponse().read())
            connection.close()
            since = answer.get("end", since)
        beat += 1
        time.sleep(1)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(scene, seconds):
    """Percent of a CPU that ten viewers cost: an idle daemon with them, less without."""
    used = []
    for viewers in (0, VIEWERS):
        code = f"import sys; sys.argv = ['page.py']; sys.path.insert(0, {str(HERE)!r}); import page; page.view({scene.port}, {seconds})"
        children = [subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(SCRATCH)}) for _ in range(viewers)]
        time.sleep(3)
        before = cpu_seconds(scene.daemon.process.pid)
        time.sleep(seconds - 4)
        used.append(100 * (cpu_seconds(scene.daemon.process.pid) - before) / (seconds - 4))
        for child in children:
            assert child.wait() == 0
    print(f"# idle {used[0]:.2f} % of a CPU, with {VIEWERS} viewers {used[1]:.2f} %", flush=True)
    return used[1] - used[0]


# ---- pictures ---------------------------------------------------------------------------------------------------------------

def take_pictures(page, scene, directory):
    directory.mkdir(parents=True, exist_ok=True)
    number = next(g["number"] for g in scene.daemon.stats()["graphs"] if g["name"] == "bible.decode")
    for name, view_, width, dark in (("overview-phone", "overview", "phone", False), ("overview-phone-dark", "overview", "phone", True),
                                     ("overview-desk", "overview", "desk", False), ("overview-desk-dark", "overview", "desk", True),
                                     ("overview-wall", "overview", "wall", False), ("overview-wall-dark", "overview", "wall", True),
                                     ("graph-wall-dark", f"graphs/{number}", "wall", True), ("models-desk", "models", "desk", False),
                                     ("devices-desk-dark", "devices", "desk", True), ("identities-phone", "identities", "phone", False)):
        page.size(*WIDTHS[width], dark=dark)
        show(page, scene, view_)
        time.sleep(4)
        page.screenshot(directory / f"{name}.png")
        if shutil.which("pngquant"):  # a third of the size
            subprocess.run(["pngquant", "--force", "--skip-if-larger", "--strip", "--ext", ".png", "128", directory / f"{name}.png"], check=False)


def main_of_page():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="taken as other parts take it; nothing here is random")
    parser.add_argument("--pictures", type=pathlib.Path)
    options = parser.parse_args(ARGUMENTS)
    passed = failed = 0
    if chromium.program() is None:
        print("skip - the page in a browser: chromium is not installed (Debian: chromium)\n0 passed, 0 failed")
        return 77
    scene = Scene(free_port())
    time.sleep(WARM)
    with chromium.Browser() as page:
        if options.pictures:
            take_pictures(page, scene, options.pictures)
        def costs_little(page, scene):
            scene.rest()
            percent = cost(scene, max(10, options.seconds))
            assert percent <= COST_LIMIT, f"{VIEWERS} viewers cost {percent:.2f} % of a CPU"
        for fn in [*TESTS[:-1], costs_little, TESTS[-1]]:
            try:
                fn(page, scene)
                complaints = [c for c in page.complaints() if fn not in (policy_refuses_scripts, away_and_back)]
                page.events.clear()
                assert not complaints, complaints
                passed += 1
                print(f"ok - {fn.__name__.replace('_', ' ')}", flush=True)
            except (AssertionError, RuntimeError, TimeoutError) as error:
                failed += 1
                print(f"not ok - {fn.__name__.replace('_', ' ')}: {error}", flush=True)
    scene.stopping.set()
    for client in scene.clients:
        client.channel.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main_of_page())
