"""The formulas of letters and chats, in English and fourteen other languages: greetings, sign-offs, polite closings."""

import re
from collections.abc import Iterable

MAX_FORMULA = 90
"""A formula is a short line that says nothing else."""
MAX_REQUEST = 400
"""A longer request is read as it is."""

_GREETINGS = {
    "en": r"dear|good (?:morning|afternoon|evening)|to whom it may concern",
    "de": r"liebe[rs]?|guten (?:tag|morgen|abend)|sehr geehrte[rs]?",
    "fr": r"ch[eè]re?s?",
    "es": r"buen[oa]s (?:d[ií]as|tardes|noches)|estimad[oa]s?|querid[oa]s?",
    "pt": r"bom dia|boa (?:tarde|noite)|prezad[oa]s?",
    "it": r"gentil[ei]|egregi[oa]|buongiorno|buonasera",
    "pl": r"dzie[nń] dobry|szanown[aiey]\w*",
    "tr": r"sayın|sevgili",
    "ru": r"уважаем\w+|здравствуйте|добрый (?:день|вечер)|доброе утро",
    "vi": r"kính (?:gửi|chào)|thân gửi",
    "hi": r"प्रिय|नमस्ते|आदरणीय|priy",
    "ar": r"السيدة?|عزيزت?ي|السلام عليكم|تحية طيبة",
    "ko": r"안녕하세요",
    "zh": r"尊敬的|亲爱的|您好",
}
_INFORMAL = (
    r"hi|hello|hey|hallo|moin|servus|bonjour|bonsoir|madame|monsieur|hola|ol[aá]|car[oaie]|ciao|salve|cze[sś][cć]"
    r"|drog[ai]\w*|merhaba|selam|iyi günler|привет|дорог\w+|xin chào|chào|namaste"
)
"""Greetings of letters that requests begin with too: "hey, …"; a line of them ends with a comma."""
_SIGN_OFFS = {
    "en": r"(?:(?:with |many )?(?:best|kind|kindest|warm|warmest|many) )?(?:regards|wishes|thanks(?=[\s,.!]*$))\b"
    r"|best,|all the best"
    r"|cheers,|(?:yours )?(?:sincerely|faithfully|truly)\b|take care,|sent from my ",
    "de": r"(?:viele|liebe|beste|herzliche|schöne|freundliche) gr(?:ü|ue)(?:ß|ss)e|hochachtungsvoll|grüße"
    r"|mit (?:freundlich|best|lieb|herzlich|viel)\w+ gr|lg\b|vg\b|mfg\b|von meinem \w+ gesendet",
    "fr": r"(?:bien |très )?cordialement|bien à (?:vous|toi)|sincères salutations|amicalement|envoyé de mon ",
    "es": r"(?:un |muchos )?(?:cordiales )?saludos?\b|atentamente|un abrazo",
    "pt": r"atenciosamente|cumprimentos|(?:um )?abraços?\b",
    "it": r"(?:cordiali|distinti|tanti) saluti|un saluto|cordialmente",
    "pl": r"pozdrawiam|z poważaniem|serdecznie",
    "ru": r"с уважением|с наилучшими",
    "tr": r"saygılarım|sevgiler|iyi çalışmalar",
    "vi": r"trân trọng|thân ái",
    "zh": r"此致|敬上|祝好",
    "ja": r"敬具|よろしくお願い",
    "ar": r"مع (?:خالص |أطيب )?(?:التحية|التحيات|تحياتي)|تحياتي",
    "hi": r"सादर|भवदीय|saadar\b",
    "": r"(?:--|—)\s*$",
}
_WROTE = (
    r"(?:on|am|le|el|em|il|w dniu)\b.{6,90}(?:wrote|schrieb\b.{0,40}|a écrit|escribió|escreveu|ha scritto"
    r"|napisał\w*)\s?:"
    r"|.{6,90}(?:пишет|写道|のメール|tarihinde şunu yazdı)\s?[:：]"
    r"|-{2,} ?(?:original message|forwarded message|ursprüngliche nachricht|message d'origine"
    r"|mensaje original)\b.{0,20}"
)
_CLOSINGS = {
    "en": r"have a (?:nice|good|great|lovely) (?:day|evening|weekend|week|one)|(?:much|greatly) appreciated|talk soon"
    r"|(?:i(?:['’]m| am)? )?look(?:ing)? forward to (?:your \w+|hearing from you|it)|see you(?: soon| then)?|bye"
    r"|good night"
    r"|(?:(?:many )?(?:thanks|thx)|thank you)(?: a lot| very much| so much| in advance| for your \w+)*",
    "de": r"(?:ich wünsche )?(?:ihnen |dir |euch |noch )*(?:einen |ein )?schöne[ns]? (?:tag|abend|wochenende"
    r"|woche)(?: noch)?"
    r"|(?:ich |wir )?freuen? (?:mich|uns) auf (?:ihre|deine|eure|eine) \w+|(?:vielen |herzlichen "
    r"|besten )?dank(?: im voraus)?"
    r"|danke(?: schön| sehr| dir| ihnen| euch| im voraus)*|tschüss|bis (?:bald|dann|später|morgen)|gute nacht",
    "fr": r"(?:passez une )?(?:très )?bonne (?:journée|soirée|semaine)|bon week-end|(?:dans l['’]"
    r"|en )attente de votre \w+"
    r"|merci(?: beaucoup| bien| d['’]avance)*|à (?:bientôt|demain|plus(?: tard)?)|au revoir",
    "es": r"(?:que )?(?:tengas?|pases?) (?:usted )?(?:un )?(?:buen|lindo) (?:día|fin de semana)|buen (?:día"
    r"|fin de semana)"
    r"|quedo a la espera de su \w+|espero su respuesta|(?:muchas |mil )?gracias(?: de antemano| por todo)?"
    r"|hasta (?:luego|pronto)",
    "pt": r"(?:tenha )?(?:um )?bom (?:dia|fim de semana)|(?:fico no )?aguardo (?:o )?(?:seu )?(?:retorno|contato"
    r"|resposta)"
    r"|(?:muito )?obrigad[oa](?: desde já)?|até (?:logo|breve|mais)",
    "it": r"(?:le auguro )?(?:una )?buona (?:giornata|serata)|buon (?:lavoro|weekend)|(?:mille |tante )?grazie(?: mille"
    r"| in anticipo)?|(?:resto )?in attesa di (?:un )?(?:suo |tuo |vostro )?riscontro|a presto|arrivederci",
    "pl": r"(?:życzę )?miłego (?:dnia|wieczoru|weekendu)|(?:z góry )?(?:bardzo )?dziękuję(?: z góry| bardzo)?|dzięki"
    r"|czekam na (?:twoją )?odpowiedź|do (?:zobaczenia|widzenia)",
    "ru": r"хорошего (?:дня|вечера)|всего доброго|(?:заранее )?(?:большое )?спасибо(?: заранее| большое)?|до свидания"
    r"|(?:жду|ждём) (?:вашего )?ответа",
    "tr": r"iyi (?:günler|akşamlar|çalışmalar|hafta sonları)|(?:çok |şimdiden )*teşekkür(?:ler| ederim| ederiz)?"
    r"|cevabınızı bekliyorum|görüşürüz",
    "vi": r"chúc (?:bạn )?(?:một )?ngày (?:tốt lành|vui vẻ)|(?:xin )?cảm ơn(?: bạn| trước| nhiều)*|tạm biệt"
    r"|mong nhận được phản hồi",
    "hi": r"आपका दिन शुभ हो|(?:बहुत )?(?:धन्यवाद|शुक्रिया)|(?:bahut )?(?:dhanyavaa?d|shukriya)|aapka din shubh ho",
    "ar": r"(?:أتمنى لك )?يوما? سعيدا?|(?:شكرا|شكراً)(?: جزيلا| لك| مقدما)*|في انتظار ردكم|مع السلامة",
    "zh": r"祝[您你]?.{0,4}(?:愉快|顺利|美好的一天)|(?:非常|提前|多)?(?:谢谢|感谢)[您你了啦]*|期待[您你]的回复|再见",
    "ja": r"良い(?:一日|週末)を|(?:お返事|ご返信|ご連絡)を?お待ちしております|(?:どうぞ|何卒)?よろしくお願い\w*"
    r"|(?:どうも)?ありがとう(?:ございま(?:す|した))?",
    "ko": r"좋은 하루 (?:되세요|보내세요)|(?:미리 |정말 )?(?:감사합니다|감사드립니다|고맙습니다|고마워요?)|(?:답변"
    r"|회신) 기다리겠습니다",
}
"""Whole sentences that only take leave, wish well or thank: they ask for nothing."""


def _any(patterns: Iterable[str], end: str = "") -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(patterns)}){end}", re.IGNORECASE)


_GREETING = _any(
    (
        rf"(?:{_INFORMAL})\b[^.,?!:\n]{{0,45}}[,،]",
        rf"(?:{'|'.join(_GREETINGS.values())})(?!\w)[^.?。？\n]{{0,60}}",
        r"[^,.?。、\n]{1,25}(?:様|さん|님|님께)[,、:]?",
    )
)
_SIGN_OFF = _any(_SIGN_OFFS.values())
_QUOTES = _any((_WROTE,))
_CLOSING = _any(_CLOSINGS.values(), r"[\s.!,。！،:)☺\U0001f300-\U0001f64f-]*")
_SENTENCE_END = re.compile(r"(?<=[.!?;,。！？])\s*(?=\S)|\n\s*(?=\S)|\s[-–—]\s+(?=\S)")


def is_greeting(line: str) -> bool:
    """Return whether a line greets somebody, and says nothing else."""
    return _is_all(_GREETING, line)


def is_sign_off(line: str) -> bool:
    """Return whether a line begins with what stands above the name at the end of a letter."""
    return len(line) <= MAX_FORMULA and _SIGN_OFF.match(line.strip()) is not None


def introduces_a_quote(line: str) -> bool:
    """Return whether a line says who wrote what follows, as mail programs do above a reply."""
    return len(line) <= 2 * MAX_FORMULA and _QUOTES.fullmatch(line.strip()) is not None


def is_closing(sentence: str) -> bool:
    """Return whether a sentence only takes leave, wishes well or thanks."""
    return _is_all(_CLOSING, sentence)


def without_courtesies(text: str) -> str:
    """Return a request without thanks before it and closings behind it; all of it where there is nothing else."""
    ends = list(_SENTENCE_END.finditer(text)) if len(text) <= MAX_REQUEST else []
    start, end = 0, len(text)
    for found in ends:
        if is_closing(text[start : found.start()]):
            start = found.end()
        else:
            break
    for found in reversed(ends):
        if found.start() > start and is_closing(text[found.end() : end]):
            end = found.start()
    kept = text[start:end].rstrip(" ,;\n") if end < len(text) else text[start:]
    return kept if kept.strip() else text


def _is_all(pattern: re.Pattern[str], text: str) -> bool:
    return len(text) <= MAX_FORMULA and pattern.fullmatch(text.strip()) is not None
