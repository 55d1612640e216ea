package relaysim

import "math/rand/v2"

// didLen is the length of a did:plc.
const didLen = len("did:plc:") + 24

// population is a seeded set of DIDs of which some are far more active than others.
type population struct {
	seed  uint64
	zipf  *rand.Zipf
	count int
}

// newPopulation makes a population of count DIDs; draws come from rng. The first ones are the
// busiest.
func newPopulation(seed uint64, count int, rng *rand.Rand) *population {
	return &population{seed: seed, count: count, zipf: rand.NewZipf(rng, 1.15, 30, uint64(count-1))}
}

// draw returns the number of a DID.
func (p *population) draw() int { return int(p.zipf.Uint64()) }

// appendDID appends the DID with number n.
func (p *population) appendDID(dst []byte, n int) []byte { return AppendDID(dst, p.seed, uint64(n)) }

// AppendDID appends the did:plc with number n, which is a function of the seed and n only.
func AppendDID(dst []byte, seed, n uint64) []byte {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	dst = append(dst, "did:plc:"...)
	for part := range uint64(2) {
		bits := Mix(seed ^ Mix(n<<1|part))
		for range 12 {
			dst = append(dst, alphabet[bits&31])
			bits >>= 5
		}
	}
	return dst
}

func (p *population) did(n int) string { return string(p.appendDID(nil, n)) }

// Mix spreads the bits of n (splitmix64's finalizer).
func Mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// KeepSome adds v to a list, or puts it in the place of a random element if there are most.
func KeepSome[T any](rng *rand.Rand, list []T, most int, v T) []T {
	if len(list) < most {
		return append(list, v)
	}
	list[rng.IntN(most)] = v
	return list
}

// newRand returns a generator for one purpose, independent of those for others.
func newRand(seed uint64, purpose string) *rand.Rand {
	h := Mix(seed)
	for _, c := range []byte(purpose) {
		h = Mix(h ^ uint64(c))
	}
	return rand.New(rand.NewPCG(seed, h))
}
