"""A made-up API server."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.kube.api_server import ApiServer


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as running:
        yield running
