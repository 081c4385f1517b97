"""A second connection to a WebRTC call: the unmodified `openai` SDK sees the call's events and controls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from openai import AsyncOpenAI

from tests.clients.conftest import Serving
from tests.clients.rtc import calling
from tests.clients.test_openai_sdk import Talk
from tests.clients.test_webrtc import message


@asynccontextmanager
async def beside(server: Serving, location: str) -> AsyncIterator[Talk]:
    sdk = AsyncOpenAI(api_key="none", base_url=f"{server.url}/v1")
    async with sdk.realtime.connect(call_id=location.rpartition("/")[2]) as connection:
        yield Talk(connection)


async def test_the_calls_events_are_seen_and_it_is_controlled(toy_server: Serving) -> None:
    async with calling(toy_server) as client, beside(toy_server, client.location) as talk:
        session = (await talk.until("session.created"))["session"]
        assert session["id"] == client.events[0]["session"]["id"]
        await talk.update({"type": "realtime", "instructions": "Be short."})
        assert (await client.event("session.updated"))["session"]["instructions"] == "Be short."
        client.send("conversation.item.create", item=message("count"))
        client.send("response.create")
        first = (await talk.until("response.done"))["response"]["id"]
        assert first == (await client.event("response.done"))["response"]["id"]
        await talk.write("hello")
        await talk.connection.response.create()
        await client.event("response.done", 2)
        await client.event("output_audio_buffer.stopped", 2)
        done = (await talk.until("response.done"))["response"]
        assert done["id"] == (await client.event("response.done", 2))["response"]["id"]
        await talk.hear(b"\0\0")
        assert (await talk.until("error"))["error"]["param"] == "type"
        await client.event("error")


async def test_it_ends_with_the_call_and_the_call_does_not_with_it(toy_server: Serving) -> None:
    async with calling(toy_server) as client:
        async with beside(toy_server, client.location) as talk:
            await talk.until("session.created")
        client.send("session.update", session={"type": "realtime", "instructions": "x"})
        await client.event("session.updated")
        url = f"{toy_server.url}/v1/realtime?call_id={client.location.rpartition('/')[2]}"
        async with aiohttp.ClientSession() as http:
            async with http.ws_connect(url) as socket:
                await socket.receive_json()
                async with http.delete(toy_server.url + client.location) as answer:
                    assert answer.status == 200
                while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
                assert message.data == 1000
            async with http.get(url, headers={"Upgrade": "websocket", "Connection": "Upgrade"}) as answer:
                assert answer.status == 404
