"""Files of an application, as browsers get them."""

from pathlib import Path

from onceward.web.pages import pages
from onceward.web.site import Site
from tests.service.apps import Apps
from tests.service.cluster import virtual
from tests.web.asgi import serving


@virtual
async def test_a_page_is_served_with_what_belongs_to_it_and_may_load_nothing_else(
    tmp_path: Path,
) -> None:
    for name in ("page.html", "page.js", "page.css", "secret.txt"):
        (tmp_path / name).write_text(name)
    app = Apps(shared=False).make()
    files = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
    app.mount("/own", Site(pages(tmp_path, files, "A page")))
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
