"""What is a secret by its name, and within any text: one table for all that is shown."""

from __future__ import annotations

import time

import pytest
from strom import Configuration
from strom.core import redaction
from strom.core.redaction import HIDDEN, is_secret, redacted

SECRET_NAMES = """
    password db.password PGPASSWORD passwd ssl.key.passphrase secret client_secret secretKey token
    access_token accessToken token2 sasl.oauthbearer.token credential aws_credentials Authorization
    proxy-authorization api_key api-key apiKey APIKEY x-api-key access_key access-key AccountKey
    SharedAccessKey SharedAccessSignature AWSAccessKeyId fs.s3a.access.key fs.s3a.secret.key
    fs.azure.account.key.x.net private_key privateKey signing-key stripe_key ssl.keystore.key
    X-Amz-Signature X-Amz-Credential X-Amz-Security-Token sig sas sas_token Cookie Set-Cookie jwt
    sasl.jaas.config connection_string ConnectionString PWD smtp_pass basic_auth
    strom.traces.otlp.headers.x-honeycomb-team traces.otlp_headers.x-honeycomb-team
"""

OTHER_NAMES = """
    key keys partition_key partitionKey primary.key group-key monkey keyboard key.serializer
    tokenizer passenger pass compass user name topic author signal design assign order_key
    checkpoint.interval host basic
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


TEXTS = [
    # said by name
    ("password=hush, x=1", "password=***, x=1"),
    ("password: hush", "password: ***"),
    ("password: 1234", "password: ***"),
    ("PGPASSWORD='hu sh' psql", "PGPASSWORD='***' psql"),
    ("sasl.password = 'hu sh' next", "sasl.password = '***' next"),
    ('{"api_key": "hush", "n": 1}', '{"api_key": "***", "n": 1}'),
    ("{'client_secret': 'hush'}", "{'client_secret': '***'}"),
    ("{'password': b'hush', 'n': 1}", "{'password': b'***', 'n': 1}"),
    ("password='it\\'s hush', n", "password='***', n"),
    ("password='''hush'''", "password='''***'''"),
    ("os.environ['TOKEN'] = 'hush'", "os.environ['TOKEN'] = '***'"),
    ('{"passwords": ["hush", "hush"], "n": 1}', '{"passwords": [***], "n": 1}'),
    ("credentials={'user': 'hush'} n", "credentials={***} n"),
    ("passphrase=hush", "passphrase=***"),
    ("f(token=hush)", "f(token=***)"),
    ("token=hu)sh", "token=***"),
    ("access_key=hush&x=1", "access_key=***&x=1"),
    ("psql --password hush -h db", "psql --password *** -h db"),
    ("?password%3Dhush", "?password%3D***"),
    ("<SecretAccessKey>hush</SecretAccessKey>", "<SecretAccessKey>***</SecretAccessKey>"),
    (
        "AccountName=me;AccountKey=hush+/==;EndpointSuffix=x",
        "AccountName=me;AccountKey=***;EndpointSuffix=x",
    ),
    ("password='hush and more\nnext", "password='***\nnext"),
    ("access_token: 123456, token=1234", "access_token: ***, token=***"),
    ("pass=hush auth=me:hush", "pass=*** auth=***"),
    ('{"pass": "hush", "auth": "me:hush"}', '{"pass": "***", "auth": "***"}'),
    ("password='ab''hush', n", "password='***', n"),
    ("password='ab'\\''hush' n", "password='***' n"),
    ("password='ab'\"'\"'hush' n", "password='***' n"),
    ("'set password=''hush'' now'", "'set password=''***'' now'"),
    # of several lines
    ("password='ab\nhush', n", "password='***', n"),
    ("password='''ab\nit's hush\n''', n", "password='''***''', n"),
    ("password='hush\nuser='me'", "password='***\nuser='me'"),
    ("password='hush\nwe don't know", "password='***\nwe don't know"),
    # pairs
    ("('password', 'hush')", "('password', '***')"),
    ("[(b'api_key', b'hush'), (b'user', b'me')]", "[(b'api_key', b'***'), (b'user', b'me')]"),
    (r"[\"password\", \"hush\"]", r"[\"password\", \"***\"]"),
    ('{"name": "password", "value": "hush"}', '{"name": "password", "value": "***"}'),
    ("{'name': 'DB_PASSWORD',\n  'value': 'hush'}", "{'name': 'DB_PASSWORD',\n  'value': '***'}"),
    ("- name: DB_PASSWORD\n  value: hush\n", "- name: DB_PASSWORD\n  value: ***\n"),
    ('{"value": "hush", "name": "password"}', '{"value": "***", "name": "password"}'),
    ("{'Value': b'hu\\'sh',\n 'Key': 'DB_PASSWORD'}", "{'Value': b'***',\n 'Key': 'DB_PASSWORD'}"),
    (r"{\"value\": \"hush\", \"name\": \"token\"}", r"{\"value\": \"***\", \"name\": \"token\"}"),
    ('{"value": ["hush"], "id": "pass"}', '{"value": [***], "id": "pass"}'),
    ("- value: hush\n  name: DB_PASSWORD\n", "- value: ***\n  name: DB_PASSWORD\n"),
    ('<input value="hush" type="password">', '<input value="***" type="password">'),
    (
        '{"value": "{\\"value\\": \\"hush\\", \\"name\\": \\"jwt\\"}", "name": "x"}',
        '{"value": "{\\"value\\": \\"***\\", \\"name\\": \\"jwt\\"}", "name": "x"}',
    ),
    # JSON within CSV
    ('1,"{""password"": ""hush"", ""n"": 1}"', '1,"{""password"": ""***"", ""n"": 1}"'),
    ('"{""password"": ""$hu""}"', '"{""password"": ""***""}"'),
    (r'"{""password"": ""a\""hush""}"', '"{""password"": ""***""}"'),
    (r'"""{\""password\"": \""hush\""}"""', r'"""{\""password\"": \""***\""}"""'),
    ('"(""password"", ""hush"")"', '"(""password"", ""***"")"'),
    ('"{""name"": ""token"", ""value"": ""hush""}"', '"{""name"": ""token"", ""value"": ""***""}"'),
    ('"{""value"": ""hush"", ""name"": ""token""}"', '"{""value"": ""***"", ""name"": ""token""}"'),
    ("'{''password'': ''hush''}'", "'{''password'': ''***''}'"),
    # SQL
    ("USER me IDENTIFIED BY 'hush' x", "USER me IDENTIFIED BY '***' x"),
    ('identified with plain by "hush"', 'identified with plain by "***"'),
    ("IDENTIFIED BY PASSWORD 'hush'", "IDENTIFIED BY PASSWORD '***'"),
    ("CREATE USER me WITH PASSWORD 'hush'", "CREATE USER me WITH PASSWORD '***'"),
    # JSON within JSON
    (r"{\"password\": \"hush\", \"n\": 1}", r"{\"password\": \"***\", \"n\": 1}"),
    (r"{\"password\": \"a\\\"hush\"}", r"{\"password\": \"***\"}"),
    (r"{\\\"password\\\": \\\"hush\\\"}", r"{\\\"password\\\": \\\"***\\\"}"),
    (r"{\"url\": \"http://x?token=hush\"}", r"{\"url\": \"http://x?token=***\"}"),
    # headers
    ("Authorization: Bearer hushhush", "Authorization: Bearer ***"),
    ("Authorization: Token hush", "Authorization: Token ***"),
    ("Authorization: hush hush", "Authorization: ***"),
    ("-H 'Authorization: Token hush' x", "-H 'Authorization: Token ***' x"),
    ("{'Authorization': 'Bearer hush'}", "{'Authorization': '***'}"),
    ("Cookie: a=hush; b=hush", "Cookie: ***"),
    ("sent Bearer SUPERHUSH now", "sent Bearer *** now"),
    ("sent Basic bWU6aHVzaA== now", "sent Basic *** now"),
    ("('authorization', 'Bearer hushhush')", "('authorization', '***')"),
    # URLs
    ("postgresql://me:hu@sh@db/x", "postgresql://***@db/x"),
    ("postgres://u:hu/sh@db", "postgres://***@db"),
    ("redis://:hush@db", "redis://***@db"),
    ("postgres://u:1234/hush@h/db", "postgres://***@h/db"),
    ("mysql+pymysql://u:1234/hush@h/db", "mysql+pymysql://***@h/db"),
    ("https://hush@github.com/x", "https://***@github.com/x"),
    ("http://a/x,http://u:hush@b/y", "http://a/x,http://***@b/y"),
    ("s3://b/x?X-Amz-Signature=hush&y=1", "s3://b/x?X-Amz-Signature=***&y=1"),
    ("http://x?X-Amz-Credential=hush%2F&sig=hush", "http://x?X-Amz-Credential=***&sig=***"),
    # keys
    (
        "k = -----BEGIN RSA PRIVATE KEY-----\nhush\n-----END RSA PRIVATE KEY-----",
        "k = -----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----",
    ),
    # what is none
    ("12 tokens: 5, max_tokens=4096", "12 tokens: 5, max_tokens=4096"),
    ("unexpected token: }", "unexpected token: }"),
    ("the key 17 is odd", "the key 17 is odd"),
    ("key: 17, partition_key=5", "key: 17, partition_key=5"),
    ("the secret of it", "the secret of it"),
    ("password=None, token=''", "password=None, token=''"),
    ("Authorization=None, x=1", "Authorization=None, x=1"),
    ("Basic authentication, a bearer token", "Basic authentication, a bearer token"),
    ("abfs://box@account.dfs/x", "abfs://box@account.dfs/x"),
    ("http://host:8080/a@b", "http://host:8080/a@b"),
    ("docker://registry/image:1@sha256", "docker://registry/image:1@sha256"),
    ("a token > 5", "a token > 5"),
    ("token_count=4096, token: 17", "token_count=4096, token: 17"),
    ("pass=3, first pass: reading", "pass=3, first pass: reading"),
    ("['user', 'password', 'host']", "['user', 'password', 'host']"),
    ("('password', 'user', 'host')", "('password', 'user', 'host')"),
    ("hdfs://host:8020/a@b", "hdfs://host:8020/a@b"),
    ("identified by its 'name'", "identified by its 'name'"),
    ('{"value": "x", "name": "user"}', '{"value": "x", "name": "user"}'),
    ('{"value": "x", "name": "password reset"}', '{"value": "x", "name": "password reset"}'),
    ("value: 17, name: tokens", "value: 17, name: tokens"),
    ('{"value": null, "name": "password"}', '{"value": null, "name": "password"}'),
    ('"{""password"": """", ""n"": ""x""}"', '"{""password"": """", ""n"": ""x""}"'),
    ("nothing here", "nothing here"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS)
def test_texts(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown
    assert "hush" not in shown.lower()
    assert redacted(f"before {text}").removeprefix("before ") == shown


def test_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "sent from-the-environment, known-place"
    assert redacted(text) == text
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    monkeypatch.setenv("AWS_REGION", "known-place")
    assert redacted(text) == f"sent {HIDDEN}, known-place"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sent")
    assert redacted(text) == f"{HIDDEN} from-the-environment, known-place"


def test_a_cut_leaves_no_piece_of_a_secret() -> None:
    for length in range(60, 120):
        text = "x" * 40 + "password=" + "hush" * 10 + "y" * length
        assert "hus" not in redacted(text + " end", 60).replace("password=***", "")


def test_what_no_encoding_takes_is_escaped() -> None:
    assert redacted("caf\udce9 é").encode() == "caf\\udce9 é".encode()


def test_a_configuration_shows_none() -> None:
    configuration = Configuration()
    for name, value in (("api_key", "hush"), ("url", "http://me:hush@db"), ("topic", "bids")):
        configuration.set_string(name, value)
    assert str(configuration) == "{'api_key': '***', 'url': 'http://***@db', 'topic': 'bids'}"


HOSTILE = [
    *(
        "x",
        "a.",
        "token",
        "token=",
        'token="',
        "token=1 ",
        "token=''",
        "key=[",
        "api_key=[]",
        "://",
    ),
    *(
        "a://b:",
        "://@",
        "http://a:b@",
        "Bearer ",
        "basic aaaaaaaa ",
        "password ",
        "--key ",
        "<token>",
    ),
    *(
        "authorization: none ",
        "authorization=none,",
        'authorization:none"',
        "\\",
        'key=\\\\"',
        "key=(",
    ),
    *(
        'api_key=\\"',
        "-----BEGIN PRIVATE KEY-----",
        "_key_",
        "api_key\\\\\\\\",
        "secret%3d",
        "pass." * 30,
    ),
    *("cookie=\n", "token: '''", "sig=\t", "token=1,", "token=) "),
    *(
        "pass=''a",
        'pass=""a',
        "('key_key', '",
        '("key_key", \\"',
        "password='\n",
        "token='''\n",
        'password "',
    ),
    *(
        "token\n value: ",
        "identified by '",
        "'\\''",
        "token=\"'\"'",
        "password='a\n=\"",
        "redis://a:1/",
    ),
    *('value="', "value: '", 'value="",name="', "value=a/", "value=[", "value='\n", "value: '''"),
    *('value=\\"', "value: x, name: ", '""api_key"": ""', '"api_key"": ""\\', 'value"": ""a'),
]


@pytest.mark.parametrize(
    ("piece", "size"),
    [*((piece, 100_000) for piece in HOSTILE), ("x", 1_000_000), ("a://b:", 1_000_000)],
)
def test_any_text_is_looked_through_in_proportion_to_its_length(piece: str, size: int) -> None:
    """Some tenths of a second each; where work grows with the square it takes minutes."""
    began = time.process_time()
    redacted(piece * (size // len(piece)) + " token=x ://@")
    assert time.process_time() - began < 10


def test_looks_at_the_environment_again_only_when_it_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redacted("x")
    looked = redaction._found
    monkeypatch.setattr(redaction, "_LOOK_S", 1e9)
    redacted("y")
    assert redaction._found is looked
