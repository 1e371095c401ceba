// Random numbers of four positions by Philox 4x32-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// 2011). A key is the two words of the seed, the offset and the stream.

// A product of two words, the lower half first.
fn wide_product(x: u32, y: u32) -> vec2<u32> {
    let low_high = (x & 0xffffu) * (y >> 16u);
    let high_low = (x >> 16u) * (y & 0xffffu);
    let middle = (((x & 0xffffu) * (y & 0xffffu)) >> 16u) + (low_high & 0xffffu) + (high_low & 0xffffu);
    return vec2<u32>(x * y, (x >> 16u) * (y >> 16u) + (low_high >> 16u) + (high_low >> 16u) + (middle >> 16u));
}

// The words of a block. Positions have 32 bits, so that the upper word of a block's number is 0.
fn random_block(number: u32, key: vec4<u32>) -> vec4<u32> {
    var counter = vec4<u32>(number, 0u, key.z, key.w);
    var round_key = key.xy;
    for (var round = 0u; round < 10u; round++) {
        let first = wide_product(0xd2511f53u, counter.x);
        let second = wide_product(0xcd9e8d57u, counter.z);
        counter = vec4<u32>(second.y ^ counter.y ^ round_key.x, second.x, first.y ^ counter.w ^ round_key.y, first.x);
        round_key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter;
}

// The word of each position. Neighbours share a block.
fn random_words(positions: vec4<u32>, key: vec4<u32>) -> vec4<u32> {
    var number = positions.x >> 2u;
    var block = random_block(number, key);
    var words = vec4<u32>();
    for (var k = 0u; k < 4u; k++) {
        let own = positions[k] >> 2u;
        if (own != number) {
            number = own;
            block = random_block(number, key);
        }
        words[k] = block[positions[k] & 3u];
    }
    return words;
}

// The first digits, from 0 to below 1.
fn random_uniform(words: vec4<u32>, digits: u32) -> vec4<f32> {
    return vec4<f32>(words >> vec4<u32>(32u - digits)) * bitcast<f32>((127u - digits) << 23u);
}

// 1 of words up to one.
fn random_bernoulli(words: vec4<u32>, last: u32) -> Values {
    return select(Values(), Values(1), words <= vec4<u32>(last));
}

// Whole numbers below the range.
fn random_below(words: vec4<u32>, range: u32) -> vec4<u32> {
    return vec4<u32>(wide_product(words.x, range).y, wide_product(words.y, range).y, wide_product(words.z, range).y, wide_product(words.w, range).y);
}

// -log((2 w + 1) 2^-33), near 1 by the difference.
fn random_exponential(words: vec4<u32>) -> vec4<f32> {
    let far = f_log((vec4<f32>(words) + 0.5) * 0x1p-32f);
    let near = f_log1p((vec4<f32>(~words) + 0.5) * -0x1p-32f);
    return -select(near, far, words < vec4<u32>(0x80000000u));
}

// Of a pair's words: the cosine at even positions, the sine at odd ones. 1.46291808e-9 is 2 pi / 2^32.
fn random_normal(even: vec4<u32>, odd: vec4<u32>, positions: vec4<u32>) -> vec4<f32> {
    let radius = f_sqrt(2.0 * random_exponential(even));
    let quarters = (odd + vec4<u32>(0x20000000u)) >> vec4<u32>(30u);
    let rest = vec4<f32>(bitcast<vec4<i32>>(odd - (quarters << vec4<u32>(30u)))) * 1.46291808e-9;
    return radius * sine_of(Turned(rest, quarters + (vec4<u32>(1u) - (positions & vec4<u32>(1u)))), 0u);
}
