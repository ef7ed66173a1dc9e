"""What lies between the openai client and a server: one key, no foreign headers, and an end in time.

openai 3.x speaks through httpx2, so a transport that is handed to it sees exactly what a server would.
"""

import asyncio
import logging
import zlib

import httpx2

LARGEST_BODY = 2**23  # bytes; the longest replies of models have a tenth of it
TOO_LARGE = "a body that is too large"
_SENT_HEADERS = (
    "host",
    "accept",
    "content-type",
    "content-length",
    "transfer-encoding",
    "user-agent",
    "connection",
)
_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms")
# Its debug lines repeat headers, and what a server echoes there.
logging.getLogger("httpcore2").setLevel(logging.INFO)


class SafeTransport(httpx2.AsyncBaseTransport):
    """Attempts at a server with one key and no header of others, that end in time and within LARGEST_BODY.

    The openai client takes headers from the environment (OPENAI_CUSTOM_HEADERS and others), which are another
    program's: they do not pass.
    """

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        seconds: float,
        secret: str = "",
        is_azure: bool = False,
    ) -> None:
        """Wrap a transport.

        Args:
            inner: What connects.
            seconds: For a whole attempt. The limit of httpx2 is on silence, which a server that drips, or sends
                blanks to keep the line, never meets.
            secret: The server's key, empty for none.
            is_azure: Whether the key goes in Azure's header.
        """
        self.inner = inner
        self.seconds = seconds
        self._key_header = {}
        if secret:
            self._key_header = (
                {"api-key": secret} if is_azure else {"authorization": f"Bearer {secret}"}
            )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends an HTTP request with a minimum of headers and the API key, under limits of time and size.

        Args:
            request: As the client built it.

        Returns:
            The whole response.

        Raises:
            httpx2.ReadTimeout: The response was not complete in time.
        """
        headers = {name: request.headers[name] for name in _SENT_HEADERS if name in request.headers}
        # An unpacked body: its size can be seen before it is in memory.
        headers |= {"accept-encoding": "identity", **self._key_header}
        stripped = httpx2.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        try:
            async with asyncio.timeout(self.seconds):
                response = await self.inner.handle_async_request(stripped)
                try:
                    content = await _read_body(response, request)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx2.ReadTimeout(
                f"no whole reply within {self.seconds:g} s", request=request
            ) from None
        return copy_response(response, content)

    async def aclose(self) -> None:
        await self.inner.aclose()


async def _read_body(response: httpx2.Response, request: httpx2.Request) -> bytes:
    """Read and unpack the body of a response, chunk by chunk, so that no body can fill the memory.

    Args:
        response: Whose body was not read yet.
        request: That it answers, for the error.

    Returns:
        The body, at most LARGEST_BODY bytes.

    Raises:
        DecodingError: For a larger body, one that breaks off, or one that is packed in another way than it says.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip"):
        raise httpx2.DecodingError(
            f"a body in {encoding[:20]!r}, though identity was asked for", request=request
        )
    unpacker = zlib.decompressobj(31) if encoding == "gzip" else None  # 31: the header of gzip
    chunks = []
    size = 0  # bytes, unpacked
    async for chunk in response.aiter_raw():
        if unpacker is not None:
            try:
                # One byte more than allowed is enough to see that the body is too large.
                chunk = unpacker.decompress(chunk, LARGEST_BODY + 1 - size)
            except zlib.error:
                message = "a body that is not packed as it says"
                raise httpx2.DecodingError(message, request=request) from None
        chunks.append(chunk)
        size += len(chunk)
        if size > LARGEST_BODY:
            message = f"{TOO_LARGE}: more than {LARGEST_BODY:,} bytes"
            raise httpx2.DecodingError(message, request=request)
    if unpacker is not None and size and not unpacker.eof:
        raise httpx2.DecodingError("a packed body that breaks off", request=request)
    return b"".join(chunks)


def copy_response(response: httpx2.Response, content: bytes) -> httpx2.Response:
    """A response that can be read again, without headers that the openai client would write into its log."""
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    return httpx2.Response(response.status_code, headers=headers, content=content)
