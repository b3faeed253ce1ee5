"""Pages in a real Chromium, with all that they complain about."""

import shutil

from playwright.async_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Watched:
    """A page, with all that it complains about and all that it loads from elsewhere."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.complaints = page, list[str]()
        own = (address if address.startswith("file:") else f"{address}/", "data:", "blob:")
        page.on("console", lambda message: self._complain(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(own) else self.complaints.append(request.url))

    def _complain(self, text: str) -> None:
        """Keep a complaint; but tests beside this one make and remove networks, which no page is to blame for."""
        if "ERR_NETWORK_CHANGED" not in text:
            self.complaints.append(text)


async def opened(browser: Browser, address: str, path: str, *, width: int = 1280, scheme: str = "light") -> Watched:
    page = await browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    watched = Watched(page, address)
    await page.goto(f"{address}/#/{path}")
    return watched
