"""Cheap variations of drawn inputs: hypothesis draws shapes well but slowly, and volume finds what shapes miss."""

import random
from typing import Any

KEPT_NODES = 2_000


class Mutator:
    """Replaces, repeats, removes and exchanges parts of inputs with parts of earlier ones."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._nodes: list[Any] = [None, True, 0, -1, 1.5, "", [], {}]

    def learn(self, value: Any) -> None:
        """Keep the parts of an input for later ones."""
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if len(self._nodes) < KEPT_NODES:
                self._nodes.append(node)
            else:
                self._nodes[self._dice.randrange(KEPT_NODES)] = node
            waiting.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())

    def vary(self, value: Any) -> Any:
        """Return a copy that differs in one place; the type of the outermost value stays."""
        if isinstance(value, tuple):
            place = self._dice.randrange(len(value))
            return (*value[:place], self.vary(value[place]), *value[place + 1 :])
        if isinstance(value, bytes):
            return self._bytes(value)
        if isinstance(value, dict) and value:
            return self._object(value)
        if isinstance(value, list) and value:
            return self._list(value)
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return value  # sizes and queries beside the input
        return self._dice.choice(self._nodes) if not isinstance(value, (dict, list)) else value

    def _within(self, value: Any) -> Any:
        if isinstance(value, (dict, list)) and value and self._dice.random() < 0.7:
            return self.vary(value)
        return self._dice.choice(self._nodes)

    def _object(self, value: dict[Any, Any]) -> dict[Any, Any]:
        changed, key = dict(value), self._dice.choice(list(value))
        match self._dice.randrange(4):
            case 0:
                del changed[key]
            case 1:
                changed[f"{key}{self._dice.randrange(10)}"] = changed.pop(key)
            case _:
                changed[key] = self._within(value[key])
        return changed

    def _list(self, value: list[Any]) -> list[Any]:
        changed, place = list(value), self._dice.randrange(len(value))
        match self._dice.randrange(4):
            case 0:
                del changed[place]
            case 1:
                changed.insert(place, changed[place])
            case _:
                changed[place] = self._within(value[place])
        return changed

    def _bytes(self, value: bytes) -> bytes:
        place = self._dice.randrange(len(value) + 1)
        match self._dice.randrange(3):
            case 0:
                return value[:place] + bytes([self._dice.randrange(256)]) + value[place + 1 :]
            case 1:
                return value[:place] + value[place + self._dice.randrange(4) :]
            case _:
                return value[:place] + value[max(0, place - 6) : place] + value[place:]
