"""Multi-step tasks over the demo servers, each as one program; `benchmarks.code` replays it also as single calls.

`searches` is what a model would search for first. A program uses only what both Python and the sandbox have, so that
the same steps can be made one call at a time and the results compared.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeScenario:
    """A task in a user's words, the searches for its tools, and the program that does it."""

    task: str
    searches: tuple[str, ...]
    program: str


def _s(task: str, searches: str, program: str) -> CodeScenario:
    return CodeScenario(task, tuple(each.strip() for each in searches.split("|")), program.strip("\n"))


_REPO = 'owner="acme", repo="shop"'
_DAYS = 'timeMin="2026-01-01T00:00:00Z", timeMax="2026-02-01T00:00:00Z"'

SCENARIOS: tuple[CodeScenario, ...] = (
    _s(
        "Copy all GitHub issues of acme/shop to Jira project SHOP as tasks and tell me the new keys.",
        "list GitHub issues | create a Jira issue",
        f"""
issues = await tools.github.list_issues({_REPO})
made = []
for issue in issues["items"]:
    made.append(await tools.jira.createIssue(projectKey="SHOP", summary=issue["name"], issueType="Task"))
len(made)
""",
    ),
    _s(
        "Which of my GitHub pull requests have a diff, and post the list to #review.",
        "list pull requests | get the diff of a pull request | post a Slack message",
        f"""
import asyncio
pulls = (await tools.github.list_pull_requests({_REPO}))["items"]
diffs = await asyncio.gather(*[tools.github.get_pull_request_diff({_REPO}, pull_number=p["number"]) for p in pulls])
names = [p["name"] for p, d in zip(pulls, diffs) if d]
await tools.slack.slack_post_message(channel="#review", text=", ".join(names))
names
""",
    ),
    _s(
        "Summarise the weather in Berlin, Paris and Rome: current conditions and air quality.",
        "current weather | air quality",
        """
import asyncio
cities = ["Berlin", "Paris", "Rome"]
now = await asyncio.gather(*[tools.weather.get_current_weather(location=c) for c in cities])
air = await asyncio.gather(*[tools.weather.get_air_quality(location=c) for c in cities])
{c: [sorted(n), a["id"]] for c, n, a in zip(cities, now, air)}
""",
    ),
    _s(
        "Restart the failed builds of pipeline web and report how many were retried.",
        "list builds | retry a build",
        """
builds = (await tools.ci.build_list(pipeline="web", state="failed"))["items"]
for build in builds:
    await tools.ci.build_retry(pipeline="web", number=build["number"])
len(builds)
""",
    ),
    _s(
        "Write one page in Notion that lists all open incidents with their names.",
        "list incidents | get an incident | create a Notion page",
        """
incidents = (await tools.pagerduty.list_incidents())["items"]
details = [await tools.pagerduty.get_incident(incident_id=i["id"]) for i in incidents]
page = await tools.notion.notion_create_page(parent_id="root", title="; ".join(d["name"] for d in details))
[d["name"] for d in details]
""",
    ),
    _s(
        "Find all mail about alpha, read each and forward it to the team.",
        "list emails | read an email | forward an email",
        """
mails = (await tools.mail.list_emails())["items"]
wanted = []
for each in mails:
    mail = await tools.mail.read_email(message_id=each["id"])
    if "alpha" in mail["name"]:
        await tools.mail.forward_email(message_id=each["id"], to=["team@example.com"])
        wanted.append(mail["name"])
wanted
""",
    ),
    _s(
        "Translate the names of all Notion users into French, Spanish and German.",
        "list Notion users | translate text",
        """
import asyncio
users = (await tools.notion.notion_list_users())["items"]
jobs = [(u["name"], t) for u in users for t in ("fr", "es", "de")]
await asyncio.gather(*[tools.translate.translate_text(text=name, target=target) for name, target in jobs])
len(jobs)
""",
    ),
    _s(
        "How many events do I have in January per calendar entry, and find free time with ana@example.com.",
        "list calendar events | find free time",
        f"""
events = (await tools.calendar.list_events({_DAYS}))["items"]
free = await tools.calendar.find_free_time(attendees=["ana@example.com"], durationMinutes=30, {_DAYS})
[len(events), sorted(free)]
""",
    ),
    _s(
        "Check which pods log errors and create an incident for the first.",
        "list pods | read the logs of a pod | create an incident",
        """
import asyncio
pods = (await tools.kubernetes.pods_list())["items"]
logs = await asyncio.gather(*[tools.kubernetes.pods_log(name=str(p["number"])) for p in pods])
made = await tools.pagerduty.create_incident(title=f"logs of {pods[0]['name']}", service_id="1")
[log["name"] for log in logs]
""",
    ),
    _s(
        "Read all secrets that expire and list who may rotate them.",
        "secrets that expire | read a secret",
        """
expiring = (await tools.vault.vault_list_expiring())["items"]
[each["name"] for each in expiring]
""",
    ),
    _s(
        "Export the invoices of Stripe to a spreadsheet.",
        "list invoices | create a spreadsheet | append rows to a sheet",
        """
invoices = (await tools.stripe.list_invoices())["items"]
sheet = await tools.sheets.createSpreadsheet(title="Invoices")
rows = [[i["id"], i["name"]] for i in invoices]
await tools.sheets.appendRows(spreadsheetId=sheet["id"], sheet="Sheet1", rows=rows)
len(rows)
""",
    ),
    _s(
        "Compare the sizes of the buckets: how many objects are in each?",
        "list buckets | list objects in a bucket",
        """
import asyncio
buckets = (await tools.s3.s3_list_buckets())["items"]
objects = await asyncio.gather(*[tools.s3.s3_list_objects(bucket=b["id"]) for b in buckets])
{b["name"]: o["total"] for b, o in zip(buckets, objects)}
""",
    ),
    _s(
        "Describe every table of the database and suggest indexes.",
        "list database tables | describe a table | suggest indexes",
        """
import asyncio
tables = (await tools.postgres.list_tables())["items"]
described = await asyncio.gather(*[tools.postgres.describe_table(table=t["id"]) for t in tables])
hints = await tools.postgres.suggest_indexes()
[[d["name"] for d in described], hints["entity"]]
""",
    ),
    _s(
        "Turn off every stale feature flag report and post how many there are to #flags.",
        "find stale feature flags | post a Slack message",
        """
flags = (await tools.flags.list_flags())["items"]
stale = (await tools.flags.find_stale_flags())["items"]
await tools.slack.slack_post_message(channel="#flags", text=f"{len(stale)} of {len(flags)} flags are stale")
[len(flags), len(stale)]
""",
    ),
    _s(
        "Extract the text of three PDFs and say which is the longest.",
        "extract the text of a PDF",
        """
import asyncio
paths = ["a.pdf", "b.pdf", "c.pdf"]
texts = await asyncio.gather(*[tools.pdf.extract_text(path=p) for p in paths])
max(zip([t["value"] for t in texts], paths))[1]
""",
    ),
    _s(
        "Make a playlist of the recommendations for calm music.",
        "recommend music | create a playlist | add a track to the queue",
        """
found = (await tools.music.getRecommendations(seeds=["alpha"], mood="calm"))["items"]
playlist = await tools.music.createPlaylist(name="Calm")
for track in found:
    await tools.music.addToQueue(uri=track["id"])
len(found)
""",
    ),
    _s(
        "Which containers run, and what do their logs say?",
        "list containers | read container logs",
        """
import asyncio
containers = (await tools.docker.container_list())["items"]
logs = await asyncio.gather(*[tools.docker.container_logs(container=str(c["number"])) for c in containers])
{c["name"]: log["name"] for c, log in zip(containers, logs)}
""",
    ),
    _s(
        "List all DNS zones with their records.",
        "list DNS zones | list DNS records",
        """
import asyncio
zones = (await tools.dns.zones_list())["items"]
records = await asyncio.gather(*[tools.dns.records_list(zone=z["id"]) for z in zones])
{z["name"]: [r["name"] for r in rs["items"]] for z, rs in zip(zones, records)}
""",
    ),
    _s(
        "Which devices at home are on, and make a scene of them.",
        "list smart home devices | state of a device | create an automation",
        """
import asyncio
devices = (await tools.home.ListDevices())["items"]
states = await asyncio.gather(*[tools.home.GetDeviceState(deviceId=d["id"]) for d in devices])
await tools.home.CreateAutomation(name="All", trigger="sunset", action=",".join(s["id"] for s in states))
[s["name"] for s in states]
""",
    ),
    _s(
        "Get the elevation, time zone and directions for a trip from Bern to Basel.",
        "geocode an address | directions between places | distance",
        """
import asyncio
bern, basel = await asyncio.gather(tools.maps.maps_geocode(address="Bern"), tools.maps.maps_geocode(address="Basel"))
way = await tools.maps.maps_directions(origin="Bern", destination="Basel")
distance = await tools.maps.maps_distance_matrix(origins=["Bern"], destinations=["Basel"])
[sorted(bern), sorted(basel), way["value"], distance["value"]]
""",
    ),
    _s(
        "Who is on call, and send each a direct message about the release.",
        "who is on call | send a direct message in Slack",
        """
oncall = (await tools.pagerduty.list_oncalls())["items"]
await tools.slack.slack_send_direct_message(users=[o["id"] for o in oncall], text="Release at noon")
[o["name"] for o in oncall]
""",
    ),
    _s(
        "Collect the commits of acme/shop since the last release and create a release with notes.",
        "list commits | create a release",
        f"""
commits = (await tools.github.list_commits({_REPO}))["items"]
notes = "\\n".join(c["name"] for c in commits)
release = await tools.github.create_release({_REPO}, tag_name="v2", body=notes)
[len(commits), release["tag_name"]]
""",
    ),
    _s(
        "Which alert rules fire? Silence them for an hour.",
        "list alert rules | create a silence",
        """
rules = (await tools.grafana.list_alert_rules(state="firing"))["items"]
for rule in rules:
    await tools.grafana.create_silence(matchers={"alert": rule["name"]}, duration_minutes=60, comment="release")
[rule["name"] for rule in rules]
""",
    ),
    _s(
        "List the top pages and traffic sources of every analytics property.",
        "list analytics properties | top pages | traffic sources",
        """
import asyncio
properties = (await tools.analytics.listProperties())["items"]
ids = [p["id"] for p in properties]
pages = await asyncio.gather(*[tools.analytics.topPages(propertyId=i, startDate="2026-01-01") for i in ids])
sources = await asyncio.gather(*[tools.analytics.trafficSources(propertyId=i, startDate="2026-01-01") for i in ids])
{p["name"]: [a["total"], b["total"]] for p, a, b in zip(properties, pages, sources)}
""",
    ),
    _s(
        "Find files about bravo in Drive and share them with the team as viewers.",
        "search files in Drive | share a file",
        """
files = (await tools.drive.searchFiles(query="bravo"))["items"]
for file in files:
    await tools.drive.shareFile(fileId=file["id"], role="viewer")
[f["name"] for f in files]
""",
    ),
    _s(
        "Backup: copy every object of bucket-1 to the bucket backup.",
        "list objects in a bucket | copy an object",
        """
import asyncio
objects = (await tools.s3.s3_list_objects(bucket="bucket-1"))["items"]
copies = [
    tools.s3.s3_copy_object(source_bucket="bucket-1", source_key=o["id"], bucket="backup", key=o["id"]) for o in objects
]
len(await asyncio.gather(*copies))
""",
    ),
    _s(
        "Which customers of Stripe have disputes or failed charges?",
        "list customers | list charges | list disputes",
        """
import asyncio
customers, charges, disputes = await asyncio.gather(
    tools.stripe.list_customers(), tools.stripe.list_charges(status="failed"), tools.stripe.list_disputes()
)
[customers["total"], charges["total"], disputes["total"]]
""",
    ),
    _s(
        "Read the history of #general and #random and count the messages.",
        "read the history of a Slack channel | list Slack channels",
        """
import asyncio
channels = (await tools.slack.slack_list_channels())["items"]
history = await asyncio.gather(*[tools.slack.slack_get_channel_history(channel=c["id"]) for c in channels])
{c["name"]: h["total"] for c, h in zip(channels, history)}
""",
    ),
    _s(
        "Create the folders raw, clean and reports and write a README into each.",
        "create a directory | write a file",
        """
for name in ["raw", "clean", "reports"]:
    await tools.filesystem.create_directory(path=name)
    await tools.filesystem.write_file(path=f"{name}/README.md", content=f"# {name}")
tree = await tools.filesystem.directory_tree(path=".")
tree["total"]
""",
    ),
    _s(
        "Search the web, the news and papers for tool retrieval and list the titles.",
        "search the web | search news | search papers",
        """
import asyncio
found = await asyncio.gather(
    tools.websearch.web_search(query="alpha tool retrieval"),
    tools.websearch.news_search(query="alpha tool retrieval"),
    tools.websearch.scholar_search(query="alpha tool retrieval"),
)
[len(str(each)) > 0 for each in found]
""",
    ),
    _s(
        "Resize and optimise three images and compare the results with the originals.",
        "resize an image | optimise an image | compare two images",
        """
values = []
for name in ["a", "b", "c"]:
    await tools.image.resize_image(input=f"{name}.png", output=f"{name}-small.png")
    await tools.image.optimize_image(input=f"{name}-small.png", output=f"{name}-tiny.png")
    values.append((await tools.image.compare_images(first=f"{name}.png", second=f"{name}-tiny.png"))["value"])
values
""",
    ),
    _s(
        "Open one GitLab issue for each pipeline that failed and note its job log.",
        "list GitLab pipelines | create a GitLab issue",
        """
pipelines = (await tools.gitlab.gitlab_list_pipelines(project_id="7", status="failed"))["items"]
issues = []
for each in pipelines:
    issue = await tools.gitlab.gitlab_create_issue(project_id="7", title=f"{each['name']} failed")
    issues.append(issue["title"])
issues
""",
    ),
    _s(
        "Check the health of the database, its slow queries and its connections.",
        "database health | slow queries | list connections",
        """
import asyncio
health, slow, connections = await asyncio.gather(
    tools.postgres.database_health(), tools.postgres.list_slow_queries(), tools.postgres.list_connections(state="all")
)
[health["name"], slow["total"], connections["total"]]
""",
    ),
    _s(
        "Show the last commits with their changes and blame of README.md.",
        "git log | show a commit | git blame",
        """
log = (await tools.git.git_log(repo_path="."))["items"]
shown = [(await tools.git.git_show(repo_path=".", revision=c["id"]))["name"] for c in log]
blame = await tools.git.git_blame(repo_path=".", file="README.md")
[shown, blame["name"]]
""",
    ),
    _s(
        "Plan the sprint: list projects and sprints and create issues for the three goals.",
        "list Jira projects | list sprints | create a Jira issue",
        """
projects = (await tools.jira.listProjects())["items"]
sprints = (await tools.jira.listSprints(boardId=1))["items"]
made = []
for goal in ["Search", "Trust", "Docs"]:
    made.append(await tools.jira.createIssue(projectKey=projects[0]["id"], summary=goal, issueType="Story"))
[len(projects), len(sprints), len(made)]
""",
    ),
    _s(
        "Collect everything that mentions charlie: files, messages, issues and pages.",
        "search files | search Slack messages | search GitHub issues | search Notion",
        """
import asyncio
found = await asyncio.gather(
    tools.drive.searchFiles(query="charlie"),
    tools.slack.slack_search_messages(query="charlie"),
    tools.github.search_issues(query="charlie"),
    tools.notion.notion_search(query="charlie"),
)
[each["total"] for each in found]
""",
    ),
    _s(
        "Deploy version 2 of shop, web and api to staging and announce it.",
        "start a deployment | post a Slack message",
        """
for service in ["shop", "web", "api"]:
    await tools.ci.deploy_start(service=service, version="2", environment="staging")
history = await tools.ci.deploy_history(service="shop")
await tools.slack.slack_post_message(channel="#deploys", text="Version 2 is on staging")
history["total"]
""",
    ),
    _s(
        "Import the CSV files of the year into SQLite and describe the tables.",
        "import a CSV file into SQLite | describe a table | list tables",
        """
for month in ["jan", "feb", "mar"]:
    await tools.sqlite.import_csv(csv_path=f"{month}.csv", table_name=month)
tables = (await tools.sqlite.list_tables())["items"]
described = [(await tools.sqlite.describe_table(table_name=t["id"]))["id"] for t in tables]
[len(tables), described]
""",
    ),
    _s(
        "Invite everybody on the Discord server to a poll about the meetup.",
        "list Discord members | create a poll | send a Discord message",
        """
members = (await tools.discord.list_members(guildId="1"))["items"]
poll = await tools.discord.create_poll(channelId="1", question="Meetup?", answers=["yes", "no"])
for member in members:
    await tools.discord.send_message(channelId="1", content=f"{member['name']}, please vote in {poll['id']}")
len(members)
""",
    ),
    _s(
        "Take a snapshot of the page, and list its console messages and network requests.",
        "snapshot of a page | console messages | network requests",
        """
import asyncio
await tools.browser.browser_navigate(url="https://example.com")
page, console, network = await asyncio.gather(
    tools.browser.browser_snapshot(), tools.browser.browser_console_messages(), tools.browser.browser_network_requests()
)
[page["id"], console["total"], network["total"]]
""",
    ),
    _s(
        "Generate passwords for three services, store them and list the secrets.",
        "generate a password | write a secret | list secrets",
        """
for service in ["1", "2", "3"]:
    made = await tools.vault.vault_generate_password(length=20)
    await tools.vault.vault_grant_access(principal=f"svc-{service}", path=service)
secrets = await tools.vault.vault_list_secrets()
secrets["total"]
""",
    ),
    _s(
        "Compare this month with the last for visitors and report the retention.",
        "compare periods | retention report",
        """
import asyncio
periods, retention = await asyncio.gather(
    tools.analytics.comparePeriods(propertyId="1", startDate="2026-01-01", metrics=["visitors"]),
    tools.analytics.runRetention(propertyId="1", startDate="2026-01-01"),
)
[periods["value"], retention["value"]]
""",
    ),
)

REAL_SCENARIOS: tuple[CodeScenario, ...] = (
    _s(
        "Read every file of the folder and say how many words each has.",
        "list the files of a directory | read a text file",
        """
listed = str(await tools.filesystem.list_allowed_directories())
folder = listed.splitlines()[-1].split("'")[0].strip()
text = await tools.filesystem.read_text_file(path=folder + "/greeting.txt") if folder.startswith("/") else {}
len(str(text).split()) > 0
""",
    ),
    _s(
        "Add four pairs of numbers and echo the results.",
        "add two numbers | echo a message",
        """
import asyncio
pairs = [(1, 2), (3, 4), (5, 6), (7, 8)]
sums = await asyncio.gather(*[tools.everything.get_sum(a=a, b=b) for a, b in pairs])
await tools.everything.echo(message=str(sums))
sums
""",
    ),
    _s(
        "What time is noon in New York in Tokyo, Berlin and Sydney?",
        "convert a time between time zones",
        """
import asyncio
zones = ["Asia/Tokyo", "Europe/Berlin", "Australia/Sydney"]
found = await asyncio.gather(
    *[tools.time.convert_time(source_timezone="America/New_York", time="12:00", target_timezone=z) for z in zones]
)
[str(each)[:200] for each in found]
""",
    ),
)
