"""Hostile programs, and how to tell that the sandbox has contained each."""

import dataclasses
import typing


@dataclasses.dataclass
class Attack:
    """A hostile program. contained(run, host) gets the answer's run_result and what the host knows."""

    name: str
    language: str
    code: str
    contained: typing.Callable
    timeout: float = 3.0
    compiles: bool = False  # the attack is on the compiler


def prints(text):
    return lambda run, host: run["stdout"].strip() == text


def fails(run, host):
    return run["status"] == "TimeLimitExceeded" or run["return_code"] != 0


def ends(run, host):
    return run["status"] in ("Finished", "TimeLimitExceeded")


def late(run, host):
    return run["status"] == "TimeLimitExceeded"


# A program that tries each statement, and prints the first one that succeeds.
TRIES = """
import ctypes, os, signal, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0: raise OSError(ctypes.get_errno(), "")
for attempt in ATTEMPTS:
    try:
        result = attempt()
    except (OSError, subprocess.SubprocessError, ValueError):
        continue
    print("ESCAPED", ATTEMPTS.index(attempt), repr(result)[:200])
    break
else:
    print("contained")
"""


def tries(name, *attempts):
    body = "ATTEMPTS = [" + ", ".join(f"lambda: {attempt}" for attempt in attempts) + "]" + TRIES
    return Attack(name, "python", body, prints("contained"))


ATTACKS = [
    tries(
        "network from Python",
        "socket.create_connection(('127.0.0.1', PORT), 1)",
        "socket.socket(socket.AF_INET6)",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    ),
    Attack("network from bash", "bash", "echo x > /dev/tcp/127.0.0.1/PORT && echo ESCAPED", fails),
    tries(
        "secrets of other processes",
        "open('/proc/1/environ').read()",
        "open('/proc/self/environ').read()",
        "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
        "os.listdir('/proc')",
        "os.listdir(f'/proc/{os.getppid()}/fd')",
    ),
    Attack("secrets in the environment", "bash", "env", lambda run, host: host.secret not in run["stdout"]),
    tries(
        "secrets in files",
        "open('SECRET_FILE').read()",
        "open('/etc/shadow').read()",
        "open('/etc/passwd').read()",
        "os.listdir('/root')",
        "os.listdir('/home')",
        "os.listdir('/')",
        "os.listdir('..')",
        "os.listdir('../..')",
    ),
    tries(
        "writes to the system",
        "open('/usr/bin/escaped', 'w')",
        "open('/tmp/escaped', 'w')",
        "open('/dev/shm/escaped', 'w')",
        "open('../escaped', 'w')",
        "open('/sys/kernel/mm/ksm/run', 'w')",
        "os.mknod('device', 0o20600, os.makedev(1, 1))",
        "os.rename('main.py', '../main.py')",
        "os.truncate('/usr/bin/python3', 0)",
    ),
    Attack(
        "permissions and times of other folders", "python",
        "import os\nfor path in ('..', '../..', '../../worker-0', '../../worker-1'):\n"
        "    try: os.chmod(path, 0); os.utime(path, (1, 1))\n    except OSError: pass\n"
        "print(os.stat('..').st_mode & 0o777 != 0 and os.stat('..').st_mtime > 9)\n",
        prints("True"),
    ),
    tries(
        "symbolic links",
        "(os.symlink('/etc/passwd', 'link'), open('link').read())[1]",
        "(os.symlink('/proc/1', 'proc'), os.listdir('proc'))[1]",
        "(os.symlink('/', 'root'), os.listdir('root/etc'))[1]",
    ),
    tries("hard links", "os.link('/etc/passwd', 'passwd')", "os.link('/usr/bin/su', 'su')"),
    tries(
        "descriptors of other processes",
        "[os.fstat(n) and n for n in range(3, 20)]",
        "[os.fstat(n) and n for n in range(20, 200)]",
        "call(438, os.getppid(), 0, 0)",  # pidfd_getfd
    ),
    tries(
        "ptrace and memory of other processes",
        "call(101, 16, os.getppid(), 0, 0)",  # PTRACE_ATTACH
        "call(101, 0, 0, 0, 0)",  # PTRACE_TRACEME
        "call(310, os.getppid(), 0, 0, 0, 0, 0)",  # process_vm_readv
        "call(312, os.getpid(), os.getppid(), 0, 0, 0)",  # kcmp
        "call(434, os.getppid(), 0)",  # pidfd_open
    ),
    tries(
        "signals to other processes",
        "os.kill(os.getppid(), signal.SIGKILL)",
        "os.kill(1, signal.SIGKILL)",
        "os.kill(-1, signal.SIGKILL)",
        "os.kill(-(1 << 31), signal.SIGKILL)",
        "os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)",
        "call(200, os.getppid(), 9)",  # tkill
        "call(234, os.getppid(), os.getppid(), 9)",  # tgkill
        "call(129, os.getppid(), 9, 0)",  # rt_sigqueueinfo
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "call(302, os.getppid(), 6, 0, 0)",  # prlimit64
    ),
    tries(
        "namespaces, mounts and kernel interfaces",
        "call(272, 0x10000000)",  # unshare(CLONE_NEWUSER)
        "call(56, 0x10000000 | 17, 0, 0, 0, 0)",  # clone(CLONE_NEWUSER)
        "call(56, 0x8000 | 17, 0, 0, 0, 0)",  # clone(CLONE_PARENT)
        "call(435, 0, 0)",  # clone3
        "call(165, b'none', b'.', b'tmpfs', 0, 0)",  # mount
        "os.chroot('.')",
        "call(155, b'.', b'.')",  # pivot_root
        "call(321, 0, 0, 0)",  # bpf
        "call(298, 0, 0, 0, 0, 0)",  # perf_event_open
        "call(323, 0)",  # userfaultfd
        "call(425, 1, 0)",  # io_uring_setup
        "call(250, 0, 0, 0, 0, 0)",  # keyctl
        "call(169, 0xfee1dead, 0, 0, 0)",  # reboot
        "call(29, 0, 4096, 0o1600)",  # shmget
        "call(319, b'x', 0)",  # memfd_create
        "call(157, 4, 0, 0, 0, 0)",  # prctl(PR_SET_DUMPABLE)
        "call(157, 0x100000004, 0, 0, 0, 0)",
        "call(157, 1, 0, 0, 0, 0)",  # prctl(PR_SET_PDEATHSIG)
        "call(16, 1, 0x5412, b'x')",  # ioctl(TIOCSTI)
        "call(16, 1, 0x100005412, b'x')",
        "call(16, 1, 0x8901, b'0000')",  # ioctl(FIOSETOWN)
        "call(72, 1, 8, os.getppid())",  # fcntl(F_SETOWN)
        "call(72, 1, 10, 9)",  # fcntl(F_SETSIG)
        "call(9, 0, 4096, 3, 0x21, -1, 0)",  # shared memory without a file
        "call(46, 1, b'0' * 64, 0)",  # sendmsg
        "call(56, 0x10f00 & ~0x400, 0, 0, 0, 0)",  # a thread with descriptors of its own
    ),
    Attack("system calls of x32", "python", "import ctypes\nctypes.CDLL(None).syscall(1 | 0x40000000, 1, b'ESCAPED', 7)\n",
           lambda run, host: run["return_code"] == -31 and not run["stdout"]),
    Attack(
        "set-user-ID programs", "python",
        "import ctypes, os, subprocess\n"
        "assert ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) == 1\n"  # PR_GET_NO_NEW_PRIVS
        "print(os.getuid() != 0 and subprocess.run(['/usr/bin/su', '-c', 'id', 'root'], capture_output=True,"
        " stdin=subprocess.DEVNULL).returncode != 0)\n",
        prints("True"),
    ),
    Attack("fork bomb in bash", "bash", "f() { f | f & }; f; sleep 100", ends),
    Attack("fork bomb in Python", "python", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n", fails),
    Attack(
        "thread bomb", "python",
        "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "    except RuntimeError: pass\n",
        late,
    ),
    Attack("memory bomb", "python", "x = []\nwhile True: x.append(bytearray(1 << 20))\n", fails),
    Attack(
        "memory bomb in many processes", "python",
        "import os, time\nfor _ in range(40): os.fork() or (bytearray(100 << 20), time.sleep(100))\ntime.sleep(100)\n",
        fails,
    ),
    Attack(
        "memory bomb in shared memory", "python",
        "import mmap\nx = []\nwhile True:\n    x.append(mmap.mmap(-1, 1 << 20))\n    x[-1].write(bytes(1 << 20))\n",
        fails,
    ),
    Attack("memory bomb in C++", "cpp", "#include <vector>\nint main() { std::vector<char*> v; while (true) "
           "{ v.push_back(new char[1 << 20]); for (int i = 0; i < 1 << 20; i += 4096) v.back()[i] = 1; } }", fails),
    Attack("memory bomb in JavaScript", "nodejs", "let x = []; while (true) x.push(Buffer.alloc(1 << 20, 1));", fails),
    Attack("disk bomb", "bash", "yes >> file", fails),
    Attack("disk bomb in many files", "python",
           "i = 0\nwhile True:\n    open(f'f{i}', 'wb').write(bytes(1 << 20)); i += 1\n", fails),
    Attack("disk bomb in files without a name", "python",
           "import os\nx = []\nwhile True:\n    f = open('f', 'wb', buffering=0); os.unlink('f'); x.append(f)\n"
           "    for _ in range(32): f.write(bytes(1 << 20))\n", fails),
    Attack("disk bomb in mapped files without a name", "python",
           "import mmap, os, time\nx = []\nwhile True:\n    f = open('f', 'wb+'); f.write(bytes(8 << 20)); f.flush()\n"
           "    x.append(mmap.mmap(f.fileno(), 4096)); f.close(); os.unlink('f'); time.sleep(0.005)\n", fails),
    Attack("disk bomb of a process that hides its descriptors", "bash",
           "cp /bin/bash b; exec 9<b; cp /bin/cat c; chmod 111 b c; install -m 111 /bin/dd d\n"
           "./d if=/dev/urandom of=f bs=1M count=20; rm f; for i in 1 2 3 4 5 6; do sleep 1; done\n"
           "echo done", ends, timeout=8.0),
    Attack("disk bomb by allocation", "python",
           "import os\nx = []\nwhile True:\n    f = open(f'f{len(x)}', 'wb'); x.append(f)\n"
           "    os.posix_fallocate(f.fileno(), 0, 16 << 20)\n", fails),
    Attack("memory bomb after the first thread", "python",
           "import ctypes, threading, time\ndef f():\n    x = []\n    while True: x.append(bytearray(1 << 20))\n"
           "threading.Thread(target=f).start()\nctypes.CDLL(None).syscall(60, 0)\n",
           lambda run, host: fails(run, host) or "MemoryError" in run["stderr"]),
    Attack("files without number", "python", "i = 0\nwhile True: open(f'f{i}', 'w'); i += 1\n", fails),
    Attack("folders without end", "python", "import os\nwhile True: os.mkdir('d'); os.chdir('d')\n", fails),
    Attack("a folder that hides its files", "python",
           "import os, time\nos.mkdir('d')\nfor i in range(200):\n    with open(f'd/f{i}', 'wb') as f: f.write(bytes(1 << 20))\n"
           "    d = os.open('d', os.O_RDONLY); os.fchmod(d, 0o300); os.close(d)\n    d = os.open('.', os.O_RDONLY)\n"
           "    time.sleep(0.01)\n", fails),
    Attack("a program that hides its folder", "python",
           "import os\nd = os.open('.', os.O_RDONLY); os.fchmod(d, 0o300)\ni = 0\nwhile True:\n"
           "    open(f'f{i}', 'wb').write(bytes(1 << 20)); i += 1\n", fails),
    Attack("long names in a folder that hides them", "python",
           "import os\nfor _ in range(20): os.mkdir('d' * 255); os.chdir('d' * 255)\n"
           "open('f', 'wb').write(bytes(8 << 20)); d = os.open('.', os.O_RDONLY); os.fchmod(d, 0)\nprint('hidden')\n", ends),
    Attack("memory in pipes", "python",
           "import os\nx = []\nwhile True:\n    r, w = os.pipe(); os.set_blocking(w, False); x.append((r, w))\n"
           "    try: os.write(w, bytes(1 << 20))\n    except OSError: pass\n"
           "    if len(x) == 100 and os.fork(): x.clear()\n", fails),
    Attack("mappings without number", "python",
           "import ctypes, os, time\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
           "p = libc.mmap(None, 30000 * 8192, 3, 0x22, -1, 0)\n"
           "for i in range(30000): libc.mprotect(ctypes.c_void_p(p + i * 8192), 4096, 1)\n"
           "for _ in range(6): os.fork()\ntime.sleep(100)\n", fails),
    Attack("endless output", "bash", "yes", fails),
    Attack("endless errors", "python", "import sys\nwhile True: sys.stderr.write('x' * 65536)\n", fails),
    Attack("output that is not text", "python", "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 64)\n", ends),
    Attack("sleep past the limit", "bash", "trap '' TERM INT HUP; sleep 1000", late),
    Attack("endless loop", "cpp", "int main() { for (volatile int i = 0;; ++i) {} }", late),
    Attack("a program that stops itself", "bash", "kill -STOP $$; sleep 100", late),
    Attack("a program that kills its group", "python", "import os, signal\nos.killpg(0, signal.SIGKILL)\n", fails),
    Attack(
        "daemonised child that writes a verdict", "python",
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        for _ in range(1000):\n"
        "            time.sleep(0.005)\n"
        "            os.write(1, b'accepted\\n')\n"
        "    os._exit(0)\n"
        "print('wrong', flush=True)\n",
        lambda run, host: run["stdout"].startswith("wrong") and not host.strays(),
    ),
    Attack(
        "daemon under another name", "bash",
        "(setsid bash -c 'exec -a kthreadd sleep 1000' >/dev/null 2>&1 &) ; echo done",
        lambda run, host: run["stdout"] == "done\n" and not host.strays(),
    ),
    Attack("a deep recursion", "python", "def f(): return f()\nimport sys\nsys.setrecursionlimit(1 << 30)\nf()\n", fails),
    Attack("a compiler that does not end", "cpp",
           "template <int N> struct A { static constexpr int x = A<N - 1>::x + A<N - 2>::x; };\n"
           "#include __FILE__\nint main() { return A<1000000>::x; }\n", lambda run, host: run is None or fails(run, host), compiles=True),
    Attack("a compiler that reads secrets", "cpp", '#include "SECRET_FILE"\nint main() {}\n',
           lambda run, host: run is None, compiles=True),
]

HONEST = [
    ("python", "print(sum(int(x) for x in input().split()))", "3 4 5", "12"),
    ("python", "import subprocess\nprint(subprocess.run(['echo', input()], capture_output=True, text=True).stdout)", "hi", "hi"),
    ("python", "import threading\nr = []\nt = [threading.Thread(target=r.append, args=(i,)) for i in range(8)]\n"
     "[x.start() for x in t]; [x.join() for x in t]\nprint(sorted(r))", "", "[0, 1, 2, 3, 4, 5, 6, 7]"),
    ("python", "import os, tempfile\nwith tempfile.TemporaryDirectory() as d:\n    open(d + '/f', 'w').write(input())\n"
     "    print(open(d + '/f').read())", "text", "text"),
    ("python", "import asyncio\nasync def f(): await asyncio.sleep(0.01); return input()\nprint(asyncio.run(f()))", "a", "a"),
    ("python", "import os, signal\np = os.fork()\nif p == 0: signal.pause()\nos.kill(p, signal.SIGKILL)\n"
     "print(os.waitpid(p, 0)[1], input())", "x", "9 x"),
    ("bash", "read a; for i in 1 2 3; do echo $((a * i)); done | sort -nr | head -1", "7", "21"),
    ("bash", "read a; sleep 100 & kill $!; wait $! 2>/dev/null; echo $a", "k", "k"),
    ("nodejs", "console.log(require('fs').readFileSync(0, 'utf8').trim().split('').reverse().join(''))", "abc", "cba"),
    ("cpp", "#include <iostream>\n#include <thread>\nint main() { int a, b; std::cin >> a >> b; int c = 0;\n"
     "  std::thread t([&] { c = a * b; }); t.join(); std::cout << c << std::endl; }", "6 7", "42"),
]
