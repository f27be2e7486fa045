# SPDX-License-Identifier: Apache-2.0
"""gdb commands that show what a daemon holds, live or in a core dump: gdb -x scripts/gdb.py ...

  ngd-programs    programs, with their executables and bindings
  ngd-queues      run queues: slots, and the items that wait for them
  ngd-sessions    sessions, with what they hold
  ngd-plan ADDR   the calls and tensors of a plan; ngd-programs shows the address

The commands only read memory. A thread that was stopped while it changed a list leaves it half changed: a command then
shows what it can and says so. The program needs debug information (the default of configure has it).
"""
import gdb

LIST_MAX = 1 << 20  # elements; more means that the list is broken
NEVER = (1 << 63) - 1
CLASSES = ("high", "normal", "low")
OBJECTS = ("buffers", "graphs", "sequences", "groups")


# ---- values -------------------------------------------------------------------------------------------

def pointer_to(name):
    return gdb.lookup_type(name).pointer()


def text(value):
    """A char * or a char array; "" for NULL."""
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR and int(value) == 0:
        return ""
    return value.string(errors="replace")


def offset_of(type_name, *path):
    """Bytes from the beginning of a struct to a member, or to a member of a member."""
    kind, bits = gdb.lookup_type(type_name), 0
    for name in path:
        field = next(f for f in kind.fields() if f.name == name)
        bits += field.bitpos
        kind = field.type
    return bits // 8


def container_of(address, type_name, *path):
    start = int(address) - offset_of(type_name, *path)
    return gdb.Value(start).cast(pointer_to(type_name)).dereference()


def elements(head, type_name, *path):
    """The structs of a struct ngd_list, in order."""
    end, at = int(head.address), head["next"]
    for _ in range(LIST_MAX):
        if int(at) == end:
            return
        yield container_of(at, type_name, *path)
        at = at["next"]
    raise gdb.GdbError("a list does not end")


def heap_nodes(heap):
    """The addresses of a struct ngd_heap's nodes, the first one first, the others in no order."""
    todo = [heap["root"]]
    for _ in range(LIST_MAX):
        while todo and int(todo[-1]) == 0:
            todo.pop()
        if not todo:
            return
        node = todo.pop()
        yield node
        todo += [node["next"], node["child"]]
    raise gdb.GdbError("a heap does not end")


def digest(value):
    """The first 16 digits, as npugraphctl prints them."""
    return bytes(int(value["b"][i]) for i in range(8)).hex()


def milliseconds(nanoseconds):
    return f"{int(nanoseconds) / 1e6:.3f} ms"


def enum_name(value, prefix):
    return str(value).removeprefix(prefix).lower()


def file_type(function, name):
    """A struct of the source file that defines the function: other files may have one of the same name."""
    symbol = gdb.lookup_global_symbol(function)
    if symbol is None:
        raise gdb.GdbError(f"{function} is unknown: is this npugraphd, with debug information?")
    return gdb.lookup_type(name, symbol.symtab.static_block())


# ---- the daemon ---------------------------------------------------------------------------------------

def daemon():
    try:
        gdb.lookup_type("struct ngd_daemon")  # builds with -g1, such as sanitizers' in CI, know lines only
        return gdb.parse_and_eval("main::d")
    except gdb.error as error:
        raise gdb.GdbError(f"no daemon here ({error}): attach to npugraphd, or load its core; it has to be built with "
                           "-g") from error


def part(name, type_name):
    value = daemon()[name]
    if int(value) == 0:
        raise gdb.GdbError(f"the daemon has no {name}: it has not started, or has stopped")
    return value.cast(pointer_to(type_name)).dereference()


def scheduler():
    return part("sched", "struct ngd_sched")


def device_name(queue):
    return text(queue["dev_name"])


class Command(gdb.Command):
    """A command that prints what lines() yields, and what went wrong behind it."""

    def __init__(self):
        super().__init__(self.name, gdb.COMMAND_DATA)

    def invoke(self, argument, _from_tty):
        try:
            for line in self.lines(argument):
                print(line)
        except gdb.MemoryError as error:
            raise gdb.GdbError(f"the rest cannot be read: {error}") from error


# ---- programs -----------------------------------------------------------------------------------------

def symbols_of(graph, values):
    names = [text(graph["symbols"][i]["name"]) for i in range(int(graph["n_symbols"]))]
    return " ".join(f"{name}=={int(values[i])}" for i, name in enumerate(names)) or "no symbols"


def executable_lines(graph, cache):
    for entry in cached(cache):
        x = entry["art"].cast(pointer_to("struct ngd_executable"))
        plan = x["exec"]["plan"]
        yield (f"  executable {int(x):#x}: key {int(entry['key']['hash']):016x}, "
               f"{symbols_of(graph, entry['key']['symbols'])}, {int(x['runs'])} runs, "
               f"expected {milliseconds(x['expected'])}{', poisoned' if x['poisoned'] else ''}, "
               f"plan {int(plan):#x}: {int(plan['n_calls'])} calls, {int(plan['pool_bytes'])} pool bytes")


def cached(cache):
    """The entries of a graph cache that have an executable."""
    record = file_type("ngd_gcache_get", "struct record")
    end, at = int(cache["records"].address), cache["records"]["next"]
    offset = next(f for f in record.fields() if f.name == "link").bitpos // 8
    for _ in range(LIST_MAX):
        if int(at) == end:
            return
        value = gdb.Value(int(at) - offset).cast(record.pointer()).dereference()
        if int(value["entry"]):
            yield value["entry"].dereference()
        at = at["next"]
    raise gdb.GdbError("a list does not end")


class Programs(Command):
    """Show the programs of the daemon, with their executables and bindings."""
    name = "ngd-programs"

    def lines(self, _argument):
        programs = list(elements(scheduler()["programs"], "struct ngd_program", "link"))
        yield f"{len(programs)} programs"
        for prog in programs:
            graph = prog["graph"].dereference()
            yield (f"program {int(prog.address):#x}: graph \"{text(graph['name'])}\" {digest(graph['digest'])} "
                   f"on {device_name(prog['queue'])}, {int(graph['n_nodes'])} nodes, {int(prog['captures'])} captures, "
                   f"{int(prog['replays'])} replays, {int(prog['eager_runs'])} eager runs, {int(prog['refs'])} references")
            yield from executable_lines(graph, prog["cache"].cast(pointer_to("struct ngd_gcache")).dereference())
            for binding in elements(prog["bindings"], "struct ngd_binding", "link"):
                missing = int(binding["missing"]) < int(binding["n"])
                yield (f"  binding {int(binding.address):#x}: generation {int(binding['generation'])}, "
                       f"{int(binding['n'])} buffers{', one is missing' if missing else ''}, "
                       f"{int(binding['refs'])} references")


# ---- run queues ---------------------------------------------------------------------------------------

def fair_items(state):
    """The items of policy_fair.c's state: of each class, of each account with items there."""
    fair = gdb.Value(int(state)).cast(file_type("ngd_sched_policy_fair", "struct fair").pointer())
    account_type = gdb.lookup_type("struct ngd_account")
    classes = next(f for f in account_type.fields() if f.name == "classes")
    each = classes.type.target()
    link = next(f for f in each.fields() if f.name == "link").bitpos // 8
    for c in range(len(CLASSES)):
        head = fair["classes"][c]["all"]
        at = head["next"]
        for _ in range(LIST_MAX):
            if int(at) == int(head.address):
                break
            start = int(at) - classes.bitpos // 8 - c * each.sizeof - link
            account = gdb.Value(start).cast(account_type.pointer())
            for node in heap_nodes(account["classes"][c]["items"]):
                yield container_of(node, "struct ngd_sched_item", "node")
            at = at["next"]


def held_items(caps):
    """What the caps keep away from the policy."""
    for node in heap_nodes(caps["closed"]):
        account = container_of(node, "struct ngd_account", "cap", "node")
        for item in heap_nodes(account["cap"]["held"]):
            yield container_of(item, "struct ngd_sched_item", "node")


def item_text(item):
    """Who an item is: its functions say which struct it is a part of."""
    functions = {int(gdb.parse_and_eval(f"&{name}")): name for name in ("ngd_request_item_ops", "ngd_model_item_ops")}
    kind = functions.get(int(item["ops"]))
    if kind == "ngd_request_item_ops":
        req = container_of(item.address, "struct ngd_request", "item")
        graph = req["binding"]["prog"]["graph"]
        return f"request {int(req.address):#x} of graph \"{text(graph['name'])}\""
    if kind == "ngd_model_item_ops":
        model = container_of(item.address, "struct ngd_model", "item")
        return f"model {int(model.address):#x} \"{text(model['name'])}\""
    return f"item {int(item.address):#x}"


def item_line(item, state):
    share = item["account"]["share"]
    deadline = int(item["deadline"])
    return (f"  {state} {item_text(item)}: class {CLASSES[int(item['priority'])]}, "
            f"share {text(share['name']) if int(share) else '-'}, cost {milliseconds(item['cost'])}, "
            f"{'no deadline' if deadline == NEVER else f'deadline at {milliseconds(deadline)}'}")


def slot_line(slot):
    state = "busy" if slot["busy"] else "idle"
    running = int(slot["running"])
    return (f"  slot {int(slot['index'])}: {state}, worker {'sleeps' if slot['sleeping'] else 'is awake'}, "
            f"stream {int(slot['stream']):#x}, pool {int(slot['pool']):#x}, "
            f"{f'runs graph {running:016x}' if running else 'runs nothing'}")


class Queues(Command):
    """Show the run queue of each device: its slots, and the items that wait."""
    name = "ngd-queues"

    def lines(self, _argument):
        sched = scheduler()
        yield f"{int(sched['n_queues'])} queues, {int(sched['in_flight'])} calls in flight"
        for i in range(int(sched["n_queues"])):
            queue = sched["queues"][i]
            lineup = queue["lineup"]
            policy = text(lineup["policy"]["name"])
            yield (f"queue {device_name(queue)}: policy {policy}, {int(queue['n_busy'])} of {int(queue['n_slots'])} "
                   f"slots busy, {int(lineup['depth'])} items queued, {int(lineup['caps']['n_held'])} held by caps, "
                   f"{int(queue['waiting'])} requests wait{'' if queue['healthy'] else ', out of service'}")
            for s in range(int(queue["n_slots"])):
                yield slot_line(queue["slots"][s])
            if policy != "fair":
                yield f"  items of policy {policy} are not shown"
            for item in fair_items(lineup["state"]) if policy == "fair" else ():
                yield item_line(item, "queued")
            for item in held_items(lineup["caps"]):
                yield item_line(item, "held")


# ---- sessions -----------------------------------------------------------------------------------------

class Sessions(Command):
    """Show the sessions of the daemon, with what they hold."""
    name = "ngd-sessions"

    def lines(self, _argument):
        sessions = part("sessions", "struct ngd_sessions")
        yield f"{int(sessions['n'])} sessions"
        for s in elements(sessions["all"], "struct ngd_session", "link"):
            counts = ", ".join(f"{int(s['counts'][i])} {what}" for i, what in enumerate(OBJECTS))
            yield (f"session {int(s.address):#x}: id {int(s['id'])}, client \"{text(s['client_name'])}\", "
                   f"identity {text(s['identity']['name'])}, {enum_name(s['state'], 'SESSION_')}, {counts}, "
                   f"{int(s['bytes'])} bytes, {int(s['requests'])} requests, {int(s['refs'])} references")


# ---- plans --------------------------------------------------------------------------------------------

def numbers(array, n):
    return ",".join(str(int(array[i])) for i in range(int(n)))


def places(array, n):
    """Tensors of a call; - stands for an absent operand."""
    none = (1 << 32) - 1
    return " ".join("-" if int(array[i]) == none else f"t{int(array[i])}" for i in range(int(n)))


def tensor_line(i, t):
    pool = str(t["space"]) == "NGD_SPACE_POOL"
    where = "pool" if pool else f"bound {int(t['bound'])}"
    return (f"  t{i}: {enum_name(t['dtype'], 'NGD_')}[{numbers(t['dims'], t['rank'])}], "
            f"strides {numbers(t['strides'], t['rank']) or '-'}, {where} + {int(t['offset'])}, {int(t['bytes'])} bytes, "
            f"root t{int(t['root'])}")


class Plan(Command):
    """Show the calls and tensors of the plan at an address: ngd-plan ADDR."""
    name = "ngd-plan"

    def lines(self, argument):
        if not argument:
            raise gdb.GdbError("usage: ngd-plan ADDR; ngd-programs shows addresses of plans")
        plan = gdb.parse_and_eval(argument).cast(pointer_to("struct ngd_plan")).dereference()
        graph = plan["graph"].dereference()
        yield (f"plan {int(plan.address):#x} of graph \"{text(graph['name'])}\": key {int(plan['key']['hash']):016x}, "
               f"{symbols_of(graph, plan['symbols'])}, {int(plan['n_calls'])} calls, {int(plan['n_tensors'])} tensors, "
               f"{int(plan['pool_bytes'])} pool bytes, {int(plan['n_streams'])} streams, {int(plan['refs'])} references")
        for i in range(int(plan["n_calls"])):
            call = plan["calls"][i]
            waits = numbers(call["waits"], call["n_waits"])
            yield (f"  call {i}: {text(call['op']['name'])} {places(call['in'], call['n_in'])} -> "
                   f"{places(call['out'], call['n_out'])}, node {int(call['node'])}, stream {int(call['scope']['stream'])}"
                   f"{f', waits for {waits}' if waits else ''}, workspace {int(call['workspace_bytes'])} bytes")
        for i in range(int(plan["n_tensors"])):
            yield tensor_line(i, plan["tensors"][i])


for command in (Programs, Queues, Sessions, Plan):
    command()
