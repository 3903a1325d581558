"""Words that people use in chats and dictionaries of tool words leave out."""

import pytest

from shortlist.text.languages.reading import glossed


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("오늘 당번 누구야?", "on call"),
        ("кто сегодня дежурит?", "on call"),
        ("wer hat heute Notdienst?", "on call"),
        ("quem está de plantão hoje?", "on call"),
        ("chi è reperibile stasera?", "on call"),
        ("qui est d'astreinte ce soir ?", "on call"),
        ("bu gece nöbetçi kim?", "on call"),
        ("今天谁值班？", "on call"),
        ("раскатай новую версию на прод", "deploy"),
        ("zdeployuj nową wersję", "deploy"),
        ("derrube o processo antigo", "kill"),
        ("прибей этот процесс", "kill"),
        ("marque como lido o email da Ana", "mark read"),
        ("segna come letta l'ultima email", "mark read"),
        ("بلا تأخير كنسل الحجز", "cancel"),
        ("कल की मीटिंग टाल दो", "postpone"),
        ("サーバーがコケた理由を見せて", "fail"),
        ("dời sang thứ sáu cuộc họp", "reschedule"),
        ("a qué hora abre el museo", "opening hours"),
        ("sposta quell'evento nel calendario", "move"),
    ],
)
def test_colloquial_words_for_actions_are_read(text: str, english: str) -> None:
    assert english in (glossed(text) or "")
