"""Files of an application, as browsers get them."""

from pathlib import Path

from onceward.web.pages import ISOLATED, Pages
from onceward.web.site import Site
from tests.schedule.cluster import virtual
from tests.web.asgi import serving
from tests.work.apps import Apps


@virtual
async def test_a_page_is_served_with_what_belongs_to_it_and_may_load_nothing_else(
    tmp_path: Path,
) -> None:
    for name in ("page.html", "page.js", "page.css", "secret.txt"):
        (tmp_path / name).write_text(name)
    app = Apps(shared=False).make()
    files = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
    app.mount("/own", Site(Pages(tmp_path).routes(files, "A page")))
    async with serving(app) as caller:
        for path, name in files.items():
            answer = await caller("GET", f"/own{path}")
            assert (answer.status, answer.body.decode()) == (200, name)
            kind = {"js": "javascript"}.get(name[5:], name[5:])
            assert answer.headers["content-type"] == f"text/{kind}; charset=utf-8"
            assert answer.headers["x-content-type-options"] == "nosniff"
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
        for path in ("/secret.txt", "/../secret.txt", "/page.html"):
            assert (await caller("GET", f"/own{path}")).status == 404


@virtual
async def test_all_files_of_a_folder_can_be_asked_for_by_name_and_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "page.svg").write_text("drawn")
    for name in ("folder/notes.txt", "secret.js"):
        (tmp_path / name).write_text("secret")
    app = Apps(shared=False).make()
    pages = Pages(tmp_path / "folder", ISOLATED)
    app.mount("/own", Site(pages.routes({"/{file}": "{file}"}, "A file")))
    async with serving(app) as caller:
        answer = await caller("GET", "/own/page.svg")
        assert (answer.status, answer.body) == (200, b"drawn")
        assert answer.headers["content-type"] == "image/svg+xml"
        assert "trusted-types 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        for path in ("notes.txt", "..%2Fsecret.js", "%7Bfile%7D", "page", ""):
            assert (await caller("GET", f"/own/{path}")).verdict == (404, "not_found")
