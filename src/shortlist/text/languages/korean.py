"""Korean words without their particles and verb endings."""

PARTICLES = (
    "에서는 에서도 으로는 으로도 에게서 까지는 부터는 이라는 이라고 라는 라고 에서 에게 한테 께서 으로 처럼 보다 까지 부터 마다 조차 "
    "이랑 하고 이나 만큼 대로 밖에 들을 들이 들은 들의 들에 에는 에도 과의 와의 을 를 이 가 은 는 에 의 도 만 로 와 과 랑 나 들"
).split()
ENDINGS = (
    "해주실래요 해주시겠어요 해주세요 해주십시오 해주라 해줄래요 해줄래 해줘요 해줘 해봐줘 해봐 해라 해야해 해야 해서 했는지 했던 했어 했다 했는데 "
    "하시겠어요 하십시오 하세요 하려면 하려고 하는지 하는데 하는 하고 하기 하면 하며 하지 한지 한다 하자 하다 할래 할까 할게 할지 할 한 함 해 "
    "되어있는 되어있어 되었는지 되었어 됐는지 됐어 되는지 되는 되고 되면 되어 된다 되다 된 될 돼 됨 "
    "시켜주세요 시켜줘 시켜 시키다 시키고 "
    "아주세요 어주세요 여주세요 주세요 줄래요 줄래 주라 줘요 줘봐 줘 달라고 달라 "
    "습니까 습니다 인가요 인지 이야 이에요 예요 인가 이었어 였어 "
    "려면 려고 으려고 으려면 는지 는데 었는지 았는지 었어 았어 었던 았던 겠어 고싶어 고싶은데 고있는 고있어 고 기 게 면 며 지 는 은 을 ㄹ 던 자 니 냐 나 까 요 라 다 어 아 여"
).split()
_LONGEST_FIRST = sorted({*PARTICLES, *ENDINGS}, key=lambda ending: (-len(ending), ending))
MOST_STRIPPED = 3


def bare_forms(word: str) -> tuple[str, ...]:
    """Return a word with more and more of its endings taken off, the longest form first."""
    found: dict[str, None] = {}
    queue = [word]
    for _ in range(MOST_STRIPPED):
        queue = [
            shorter
            for form in queue
            for ending in _LONGEST_FIRST
            if (shorter := form.removesuffix(ending)) != form and shorter
        ]
        found |= dict.fromkeys(queue)
    return tuple(sorted(found, key=lambda form: -len(form)))
