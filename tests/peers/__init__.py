"""The rules of other projects in bench/peers: they accept the correct kernel and reject a gross bug."""
