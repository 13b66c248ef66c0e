"""SandboxFusion's own client against freshet-sandbox.

    fusion_client_test.py BIN_DIR

Exits with 77 (skipped, for ctest) without the package sandbox-fusion, or where programs cannot be confined. The variable
FRESHET_TEST_PYTHON selects another interpreter.
"""

import base64
import importlib.util
import os
import signal
import subprocess
import sys
import unittest

SKIPPED = 77
SECONDS = 120


class FusionClientTest(unittest.TestCase):
    address = ""

    @classmethod
    def setUpClass(cls):
        import sandbox_fusion

        cls.fusion = sandbox_fusion
        sandbox_fusion.set_endpoint(f"http://{cls.address}")

    def run_code(self, **request):
        request = self.fusion.RunCodeRequest(**request)
        return self.fusion.run_code(request, max_attempts=1, client_timeout=SECONDS)

    def test_a_program_reads_and_writes(self):
        answer = self.run_code(code="print(input() + open('a/b.txt').read())", stdin="x", language="python",
                               files={"a/b.txt": base64.b64encode(b"y").decode()})
        self.assertEqual(answer.status, self.fusion.RunStatus.Success)
        self.assertEqual(answer.run_result.stdout, "xy\n")
        self.assertEqual(answer.run_result.return_code, 0)
        self.assertIsNone(answer.compile_result)

    def test_files_come_back(self):
        answer = self.run_code(code="printf hello > out; mkdir d; ln -s /etc/passwd d/link", language="bash",
                               fetch_files=["out", "missing", "d/link"])
        self.assertEqual({name: base64.b64decode(text) for name, text in answer.files.items()}, {"out": b"hello"})

    def test_how_programs_end(self):
        summary = self.fusion.SummaryMapping(CompileFailed="compile", RunFailed="run", RunTimeout="late")
        for language, code, wanted in (
            ("python", "1 / 0", "run"),
            ("python", "while True: pass", "late"),
            ("cpp", "int main() { return 3; }", "run"),
            ("cpp", "int main( {", "compile"),
            ("cpp", "int main() {}", "Success"),
            ("nodejs", "process.exit(2)", "run"),
        ):
            with self.subTest(language=language, code=code):
                answer = self.run_code(code=code, language=language, run_timeout=1 if wanted == "late" else 60,
                                       compile_timeout=60)
                self.assertEqual(self.fusion.summary_run_code_result(answer, summary), wanted)

    def test_a_submission(self):
        config = self.fusion.TestConfig(
            dataset_type="CommonOJDataset", language="python",
            provided_data={"id": 1, "content": "", "test": [
                {"input": {"stdin": "1 2"}, "output": {"stdout": "3"}},
                {"input": {"stdin": "3 4"}, "output": {"stdout": "7"}}]})
        request = self.fusion.SubmitRequest(
            dataset="mine", id=1, config=config,
            completion="```python\nprint(sum(map(int, input().split())))\n```")
        result = self.fusion.submit(request, max_attempts=1, client_timeout=SECONDS)
        self.assertTrue(result.accepted)
        self.assertEqual([test.passed for test in result.tests], [True, True])
        request.completion = "```python\nprint(3)\n```"
        result = self.fusion.submit(request, max_attempts=1, client_timeout=SECONDS)
        self.assertFalse(result.accepted)
        self.assertEqual([test.passed for test in result.tests], [True, False])

    def test_a_bad_request_is_refused(self):
        with self.assertRaisesRegex(Exception, "422.*is not inside the program's folder"):
            self.run_code(code="", language="python", files={"../x": ""})
        with self.assertRaisesRegex(Exception, "422.*language rust is not supported"):
            self.run_code(code="", language="rust")


def main(programs):
    other = os.environ.pop("FRESHET_TEST_PYTHON", "")
    if other:
        os.execv(other, [other, *sys.argv])
    if not importlib.util.find_spec("sandbox_fusion"):
        print(f"skipped: {sys.executable} lacks sandbox-fusion; pip install it")
        return SKIPPED
    process = subprocess.Popen([os.path.join(programs, "freshet-sandbox"), "--listen", "127.0.0.1:0"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        log = []
        for line in process.stdout:
            log.append(line)
            if line.startswith("ready sandbox http="):
                FusionClientTest.address = line.strip().split("=")[1]
                break
        else:
            print("".join(log))
            return SKIPPED if "programs cannot be confined here" in "".join(log) else 1
        tests = unittest.defaultTestLoader.loadTestsFromTestCase(FusionClientTest)
        return 0 if unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful() else 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
