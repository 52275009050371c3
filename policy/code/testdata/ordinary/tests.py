import unittest
from unittest import mock
import io
class T(unittest.TestCase):
    def setUp(self):
        self.buf = io.StringIO()
    def test_it(self):
        with mock.patch("builtins.print") as p:
            print("x")
            p.assert_called_once()
        for name in ("lower", "upper"):
            self.assertTrue(callable(getattr("x", name)))
        setattr(self, "x", 1)
        self.assertEqual(vars(self)["x"], 1)
if __name__ == "__main__":
    unittest.main()
