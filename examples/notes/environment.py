"""A lookup in a text that is longer than the policy's context. One of its pages has a digit from 0 to 3; the policy reads page
after page, and after each it writes one character, its note. The episode earns 1 if the last note is that digit.

Each round rebuilds the workspace from the note and the next page, and forgets everything else. With the option `rewrite: "no"`
the pages are appended to the conversation instead.
"""

import random

import freshet

PAGES = 6
LENGTH = 6  # characters of a page
DIGITS = "0123"


class Notes:
    """A lookup page by page, with a note that the policy rewrites."""

    def reset(self, seed, options):
        chance = random.Random(seed)
        self._rewrites = options.get("rewrite") != "no"
        self._digit = chance.choice(DIGITS)
        self._pages = ["x" * LENGTH for _ in range(PAGES)]
        at = chance.randrange(LENGTH)
        self._pages[chance.randrange(PAGES)] = "x" * at + self._digit + "x" * (LENGTH - at - 1)
        self._right = False
        return freshet.NewContext(self._workspace("?")), {}

    def step(self, action):
        # What a note adds to the reward: 1 when it becomes right, -1 when it is spoilt.
        before, self._right = self._right, action == self._digit
        reward = float(self._right) - float(before)
        if not self._pages:
            return "", reward, True, False, {}
        if self._rewrites:
            return freshet.NewContext(self._workspace(action if len(action) == 1 else "?")), reward, False, False, {}
        return [{"role": "user", "content": self._pages.pop(0)}], reward, False, False, {}

    def _workspace(self, note):
        return [{"role": "user", "content": note + self._pages.pop(0)}]
