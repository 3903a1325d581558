"""How well untidy requests are understood: languages, typos, pastes, chats, several wishes, hints and real servers."""
