from typing import Any

import pytest
from training.poison.collect_npm import licence_of, read_package
from training.poison.javascript import UNREAD, Code

STRING = {"type": "string"}


def tools(source: str, **others: str) -> list[dict[str, Any]]:
    files = {"src/index.ts": source} | {f"src/{name}.ts": text for name, text in others.items()}
    return read_package(files)[0]


def test_a_registered_tool_has_its_parameters() -> None:
    source = """
        import { z } from "zod"; // server.tool("no", "In a comment, which is not read", {}, run)
        const LIMIT = z.number().int().min(1).default(10).describe("At most");
        server.registerTool('find_notes', {
            title: "Find", description: `Find notes.\n` + 'It\\'s quick \\u2713',
            inputSchema: {
                query: z.string().describe("What to \\"find\\""), limit: LIMIT, kind: z.enum(["a", "b"]).optional(),
            },
        }, async ({ query }) => ({ content: [{ type: "text", text: `${query}}` }] }));
    """
    assert tools(source) == [
        {
            "name": "find_notes",
            "description": "Find notes.\nIt's quick ✓",
            "title": "Find",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {**STRING, "description": 'What to "find"'},
                    "limit": {"type": "integer", "default": 10, "description": "At most"},
                    "kind": {**STRING, "enum": ["a", "b"]},
                },
                "required": ["query"],
            },
        }
    ]


@pytest.mark.parametrize(
    "source",
    [
        'server.tool("add_note", "Add a note to a list", { text: z.string() }, async (args) => add(args));',
        'export const NOTE: Tool = { name: "add_note", description: ["Add a note", "to a list"].join(" "),'
        ' inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] } } as const;',
        'server.addTool({ name: "add_note", description: ABOUT.trim(), parameters: z.object({ text: z.string() }),'
        " execute: async (args) => `${args.text}` }); const ABOUT = ` Add a note to a list\n`",
        'const all = [{ name: "add_note", description: ("Add a note " + "to a list"), inputSchema: jsonSchema(Note) }];'
        "const Note = z4.strictObject({ text: z4.string() })",
        'tool({ name: Names.add, description: "Add a note to a list", schema: Type.Object({ text: Type.String() }) });'
        'const Names = { add: "add_note" };',
        'x = { add_note: { description: "Add a note to a list", inputSchema: z.object({ text: z.string() }) } }',
        '({ name: "add_note", config: { description: "Add a note to a list", inputSchema: { text: z.string() } } })',
        'registerAppTool(app, "add_note", { description: "Add a note to a list", inputSchema: { text: z.string() } })',
        "const quoted = `'${text.replace(/'/g, `''`)}'`;"
        'server.tool("add_note", "Add a note to a list", { text: z.string() }, run)',
    ],
)
def test_tools_are_found_in_many_shapes(source: str) -> None:
    schema = {"type": "object", "properties": {"text": STRING}, "required": ["text"]}
    assert tools(source) == [{"name": "add_note", "description": "Add a note to a list", "inputSchema": schema}]


def test_a_schema_may_be_in_another_file() -> None:
    source = 'server.tool("add_note", "Add a note to a list", NoteSchema.shape, run)'
    other = "export const NoteSchema = z.object({ text: z.string().describe('The note') });"
    assert tools(source, other=other)[0]["inputSchema"]["properties"] == {"text": {**STRING, "description": "The note"}}


@pytest.mark.parametrize(
    "about",
    ["`Add a note to ${list}`", '"Add a note to " + list', "about(list)", 'rich ? "Add a note" : "Add"', "twice"],
)
def test_a_description_that_cannot_be_read_whole_leaves_the_tool_out(about: str) -> None:
    source = 'const twice = "Add a note to a"; {{ const twice = "Add a note to b" }} const rich = "Add to rich";'
    assert not tools(f'{source} server.tool("add_note", {about}, {{ text: z.string() }}, run)')


def test_a_value_that_refers_to_itself_is_not_read() -> None:
    code = Code("const a = b + 'x'; const b = { c: a, d: 1 }; f(a, b)")
    assert code.value_at(code.named["a"]) is UNREAD


def test_instructions_are_those_of_the_server() -> None:
    source = 'new McpServer({ name: "n", version: "1" }, { instructions: "Ask first." }); server.tool("a", b, {}, c)'
    assert read_package({"dist/index.js": source}) == ([], "Ask first.")


@pytest.mark.parametrize(
    ("said", "licence"),
    [
        ("MIT", "MIT"),
        ({"type": "ISC"}, "ISC"),
        ("(MIT OR Apache-2.0)", "(MIT OR Apache-2.0)"),
        ("MIT AND GPL-3.0", ""),
        ("SEE LICENSE IN LICENSE", ""),
        (None, ""),
    ],
)
def test_only_permissive_licences_count(said: object, licence: str) -> None:
    assert licence_of({"license": said}) == licence
