# SPDX-License-Identifier: Apache-2.0
"""Packages of all kinds have the version of configure.ac and the options of the daemon. scripts/check-packaging has what needs tools."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import meta

CHART = "packaging/helm/npugraphd"
PLAIN = "packaging/kubernetes/npugraphd.yaml"
report = meta.Report()

version = re.search(r"^AC_INIT\(\[npugraphd\], \[([\w.]+)\]", meta.read("configure.ac"), re.M)[1]
claimed = {
    f"{CHART}/Chart.yaml, version": re.search(r"^version: (\S+)", meta.read(f"{CHART}/Chart.yaml"), re.M)[1],
    f"{CHART}/Chart.yaml, appVersion": re.search(r"^appVersion: (\S+)", meta.read(f"{CHART}/Chart.yaml"), re.M)[1],
    f"{PLAIN}, image": re.search(r'image: "npugraphd:([^"]+)"', meta.read(PLAIN))[1],
}
if os.path.exists(os.path.join(meta.TOP, "packaging/rpm/npugraphd.spec")):
    claimed["packaging/rpm/npugraphd.spec"] = re.search(r"^Version: +(\S+)", meta.read("packaging/rpm/npugraphd.spec"), re.M)[1]
if os.path.exists(os.path.join(meta.TOP, "debian/changelog")):  # not distributed
    claimed["debian/changelog"] = re.match(r"npugraphd \(([^)]+)\)", meta.read("debian/changelog"))[1]
report.check("packages_have_the_version_of_configure", [f"{what}: {has}, not {version}" for what, has in claimed.items() if has != version])

# What one place says and another must, because the kubelet, the image and the daemon do not know each other.
uid = re.search(r"--uid (\d+)", meta.read("packaging/container/Containerfile"))[1]
chart = meta.read(f"{CHART}/templates/daemonset.yaml")
report.check("pods_run_as_the_user_of_the_image",
             sorted({n for n in re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", chart) + re.findall(r"-[og] (\d+)", chart)} - {uid, "0"}))

rows = set(re.findall(r'^    "(\w+)": \(', meta.read("scripts/sbom.py"), re.M))
report.check("the_bill_of_materials_knows_each_library_of_configure",
             sorted(set(re.findall(r"PKG_CHECK_MODULES\(\[(\w+)\]", "".join(meta.read(p) for p in meta.files(["m4"], ".m4")))) - rows))

try:
    import yaml
except ImportError:
    report.skip("manifests_are_yaml_and_the_daemon_knows_their_options", "python3-yaml is not installed")
    report.end()
documents = {d["kind"]: d for d in yaml.safe_load_all(meta.read(PLAIN)) if d}
values = yaml.safe_load(meta.read(f"{CHART}/values.yaml"))
report.check("manifests_have_what_a_daemon_needs", sorted({"Namespace", "ConfigMap", "DaemonSet", "ServiceAccount"} - set(documents)))
used = set(re.findall(r"\.Values\.(\w+)", "".join(meta.read(p) for p in meta.files([f"{CHART}/templates"]))))
report.check("each_value_is_used_and_each_used_one_is_there", sorted(used ^ set(values)))

pod = documents["DaemonSet"]["spec"]["template"]["spec"]
grace = values["drainGrace"] + values["stopGrace"]
report.check("a_pod_has_time_to_drain", [] if pod["terminationGracePeriodSeconds"] > grace else [f"{grace} s for the daemon, {pod['terminationGracePeriodSeconds']} s for its pod"])

daemon = os.path.join(meta.BUILD, "npugraphd")
if not os.access(daemon, os.X_OK):
    report.skip("the_daemon_accepts_the_configuration_of_the_manifests", f"{daemon} was not built")
    report.end()
with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
    f.write(documents["ConfigMap"]["data"]["npugraphd.conf"])
    f.flush()
    run = subprocess.run([daemon, "--config", f.name, "--check-config"], capture_output=True, text=True, check=False, timeout=60)
report.check("the_daemon_accepts_the_configuration_of_the_manifests", [] if run.returncode == 0 else [run.stdout + run.stderr])
report.end()
