#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Readings of the devices' hardware: metrics, statistics, npugraphctl, and a vendor's library that fails, hangs or is missing."""
import re

from harness import *

LIBS = BUILD / "devices" / "ascend" / "sim" / ".libs"
if not (LIBS / "libdcmi.so").exists():
    skip_all(f"the simulator was not built in {LIBS}")
GRAPH = 'npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }'
SHARED = ("davinci_manager", "devmm_svm", "hisi_hdc")


def npu(*options, devices=("ascend",), **env):
    """A daemon whose readings are renewed often."""
    return Daemon(*(f"--device={d}" for d in devices), f"--ascend-libs={LIBS}", "--telemetry-interval=100ms", *options, env=env)


def state(name, text=""):
    """The state of the simulated DCMI as a file, which may be changed while the daemon runs."""
    path = SCRATCH / name
    change(path, text)
    return path


def change(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def metrics(d):
    """Returns {name: {labels: value}} of the readings."""
    found = {}
    for name, labels, value in re.findall(r"^(npugraphd_device_\w+|npu_chip_\w+)\{(.*)\} (\S+)$", d.http("/metrics")[1], re.M):
        found.setdefault(name, {})[labels] = float(value)
    return found


def readings(d, device=0):
    with Client(d, session=False) as c:
        info = c.call("Admin/Devices", pb.DevicesRequest()).devices[device]
    return {r.name: r.value for r in info.readings}, info


def ctl(d, *args):
    return subprocess.run([CTL, f"--address={d.address}", *args], capture_output=True, text=True, timeout=PATIENCE)


def replay(d):
    with Client(d) as c:
        c.replay(c.register(GRAPH).graph, [bytes(16)])


@test("an NPU's readings are metrics with our names and units and with those of the vendor's exporter")
def both_names():
    with npu(NGD_DCMISIM=str(state("both", "temperature=47 power=905 hbm_used=2048 aicore=64 double_all=3"))) as d:
        until("readings", lambda: "npu_chip_info_power" in metrics(d))
        m = metrics(d)
        own, vendor = 'device="ascend:0",chip="0"', 'id="0",device="ascend:0"'
        for name, value in (("temperature_celsius", 47), ("power_watts", 90.5), ("hardware_memory_used_bytes", 2 << 30),
                            ("hardware_memory_total_bytes", 64 << 30), ("aicore_utilization_ratio", 0.64), ("ecc_double_bit_errors_lifetime", 3)):
            assert m[f"npugraphd_device_{name}"] == {own: value}, (name, m)
        for name, value in (("temperature", 47), ("power", 90.5), ("hbm_used_memory", 2048), ("hbm_total_memory", 65536), ("utilization", 64),
                            ("hbm_ecc_total_double_bit_error_cnt", 3), ("health_status", 1)):
            assert m[f"npu_chip_info_{name}"] == {vendor: value}, (name, m)
        if shutil.which("promtool"):
            out = subprocess.run(["promtool", "check", "metrics"], input=d.http("/metrics")[1], text=True, capture_output=True)
            assert out.returncode == 0, out.stderr + out.stdout


@test("devices, top and stats.json show readings; a host without sensors lacks them")
def shown():
    root = SCRATCH / "bare"
    root.mkdir()
    with npu(devices=("ascend", "host"), NGD_HOST_ROOT=str(root), NGD_DCMISIM=str(state("shown", "temperature=47"))) as d:
        until("readings", lambda: readings(d)[0])
        table = ctl(d, "devices").stdout
        assert re.search(r"^DEVICE.* CHIP .*TEMP +POWER +AICORE", table) and "47 °C" in table and "90.5 W" in table, table
        rows = json.loads(ctl(d, "--json", "devices").stdout)["devices"]
        assert rows[0]["temperature_celsius"] == 47 and rows[0]["chip"] == "0", rows
        assert "temperature_celsius" not in rows[1] and "hardware_memory_used_bytes" not in rows[1] and "chip" not in rows[1], rows
        top = json.loads(ctl(d, "--json", "top", "--interval", "100ms", "--count", "1").stdout)["devices"]
        assert top[0]["power_watts"] == 90.5 and "power_watts" not in top[1] and top[1]["name"] == "host:0", top
        a, b = d.stats()["devices"]
        assert a["readings"]["temperature_celsius"] == 47 and a["numbers"] == {"logical": 0, "physical": 0} and b["readings"] == {} and "numbers" not in b, (a, b)


@test("the host device's readings come from the kernel's files, as they are at that time")
def of_the_host():
    root = SCRATCH / "host"
    monitor = root / "sys/class/hwmon/hwmon0"
    monitor.mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal: 4096 kB\nMemAvailable: 1024 kB\n")
    (monitor / "name").write_text("k10temp\n")
    (monitor / "temp1_input").write_text("61500\n")
    with npu(devices=("host",), NGD_HOST_ROOT=str(root)) as d:
        until("readings", lambda: readings(d)[0] == {"hardware_memory_used_bytes": 3 << 20, "hardware_memory_total_bytes": 4 << 20, "temperature_celsius": 61.5})
        assert not any(name.startswith("npu_chip") for name in metrics(d)), "a host is no NPU"
        (monitor / "temp1_input").write_text("junk\n")
        until("a value that is no number is absent", lambda: "temperature_celsius" not in readings(d)[0])


@test("a call of the vendor's library that hangs: readings are dropped, work and statistics go on, and the daemon stops")
def hangs():
    path = state("hang")
    d = npu(NGD_DCMISIM=str(path))
    until("readings", lambda: "temperature_celsius" in readings(d)[0])
    change(path, "hang.dcmi_get_device_ecc_info=1")
    until("old readings are dropped", lambda: readings(d)[0] == {})
    assert not any(name.startswith("npu_chip") or "temperature" in name for name in metrics(d))
    assert readings(d)[1].chip == "0", "a chip keeps its number"
    replay(d)
    assert d.http("/readyz")[0] == 200 and ctl(d, "devices").returncode == 0
    change(path, "")
    until("they come back", lambda: "temperature_celsius" in readings(d)[0])
    change(path, "hang.dcmi_get_device_temperature=1")
    until("old readings are dropped", lambda: readings(d)[0] == {})
    began = time.monotonic()
    d.stop()
    assert time.monotonic() - began < 8, "the stop does not wait for the library"
    assert "left behind" in d.log()


@test("a library that hangs while it is loaded holds nobody either, and other devices have their readings")
def hangs_at_load():
    with npu(devices=("ascend", "host"), NGD_DCMISIM=str(state("load", "hang.dcmi_init=1"))) as d:
        until("the host's readings", lambda: readings(d, 1)[0])
        assert readings(d)[0] == {}
        replay(d)


@test("a library that fails at first, lacks functions, or is missing: the rest is there")
def parts():
    path = state("parts", "fail.dcmi_init=-8012 absent.dcmi_get_device_power_info=1 absent.dcmi_get_device_ecc_info=1")
    with npu(NGD_DCMISIM=str(path)) as d:
        until("the log says it", lambda: "dcmi_init of libdcmi.so fails (-8012)" in d.log())
        until("CANN tells the utilization", lambda: set(readings(d)[0]) == {"aicore_utilization_ratio", "vector_utilization_ratio"})
        change(path, "absent.dcmi_get_device_power_info=1 absent.dcmi_get_device_ecc_info=1")
        until("it is initialised later", lambda: "temperature_celsius" in readings(d)[0])
        have = readings(d)[0]
        assert "power_watts" not in have and not any("ecc" in name for name in have) and "hardware_memory_used_bytes" in have, have
    with npu(NGD_ASCEND_DCMI="/nonexistent/libdcmi.so") as d:
        until("CANN tells the utilization", lambda: readings(d)[0])
        assert set(readings(d)[0]) == {"aicore_utilization_ratio", "vector_utilization_ratio"} and "no libdcmi.so" in d.log(), d.log()


@test("an interval of 0 reads nothing, and numbers are known all the same")
def never():
    with npu("--telemetry-interval=0") as d:
        time.sleep(0.3)
        have, info = readings(d)
        assert have == {} and info.chip == "0" and d.stats()["devices"][0]["readings"] == {}


@test("renumbered devices: the driver's numbers and the machine's are told apart, in labels, tables, DCMI and nodes")
def renumbered():
    place = SCRATCH / "renumbered"
    place.mkdir()
    for node in ("davinci6", "davinci7", *SHARED):
        (place / node).touch(0o660)
    env = {"NGD_ACLSIM_DEVICES": "4", "ASCEND_RT_VISIBLE_DEVICES": "2,3", "NGD_ACLSIM_PHYSICAL": "4,5,6,7", "NGD_ASCEND_DEV_ROOT": str(place),
           "NGD_DCMISIM": "temperature=50"}
    for api, devices in (("9.1", ("ascend:0", "ascend:1")), ("8.1", ("ascend:1",))):  # CANN 8.1 cannot be asked; DCMI can
        with npu(devices=devices, NGD_ACLSIM_API=api, **env) as d:
            last = len(devices) - 1
            until("readings", lambda: readings(d, last)[1].chip == "7" and "temperature_celsius" in readings(d, last)[0])
            have, info = readings(d, last)
            assert info.name == "ascend:1" and info.logical == "3" and have["temperature_celsius"] == 53, (have, info)
            assert 'id="7",device="ascend:1"' in metrics(d)["npu_chip_info_temperature"], metrics(d)
            rows = json.loads(ctl(d, "--json", "devices").stdout)["devices"]
            assert rows[last]["chip"] == "7" and rows[last]["logical"] == "3", rows
            with Client(d, session=False) as c:
                steps = {s.name: s for s in c.call("Admin/DoctorDevice", pb.DoctorDeviceRequest(device="ascend:1")).steps}
            assert "CANN's 1, the driver's (logical) 3, the machine's (physical) 7" in steps["numbers"].text, steps["numbers"]
            assert "davinci7" in steps["node davinci7"].text and word(steps["node davinci7"], "verdict") == "passed", steps


@test("a device that the variable hides is refused with what CANN makes of it, and the doctor says it too")
def hidden():
    with npu(devices=("host", "ascend:1"), NGD_ACLSIM_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="3,1") as d:
        assert "its numbers do not rise" in d.log(), d.log()
        with Client(d, session=False) as c:
            r = c.call("Admin/DoctorDevice", pb.DoctorDeviceRequest(device="ascend:1"))
        numbers = next(s for s in r.steps if s.name == "numbers")
        assert word(numbers, "verdict") == "failed" and "do not rise" in numbers.text and not r.healthy, r


main()
