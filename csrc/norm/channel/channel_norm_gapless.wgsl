// Contiguous samples whose segments no chunk divides: chunks follow each other across the borders of channels, and each spans at most two.
struct Span {
    channel: u32,
    left: u32, // elements of the chunk in that channel; the others are the next one's
}

// The chunk at an element of its sample.
fn span_at(within: u32) -> Span {
    let channel = within / params.spatial;
    return Span(channel, (channel + 1u) * params.spatial - within);
}

// Whether the elements of a quad are those of the next channel.
fn is_next(span: Span, part: u32) -> vec4<bool> {
    return vec4<u32>(0u, 1u, 2u, 3u) + 4u * part >= vec4<u32>(span.left);
}
