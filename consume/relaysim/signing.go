package relaysim

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"fmt"
	"math/big"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
)

// signingKey is an account's P-256 key. Unlike indigo's it signs deterministically (RFC 6979), so
// that a world is a function of its seed. It implements atcrypto.PrivateKey.
type signingKey struct {
	key *ecdsa.PrivateKey
}

// newSigningKey makes the key of those 32 bytes.
func newSigningKey(raw []byte) (*signingKey, error) {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	return &signingKey{key: key}, nil
}

// Equal implements atcrypto.PrivateKey.
func (k *signingKey) Equal(other atcrypto.PrivateKey) bool {
	o, ok := other.(*signingKey)
	return ok && k.key.Equal(o.key)
}

// PublicKey implements atcrypto.PrivateKey.
func (k *signingKey) PublicKey() (atcrypto.PublicKey, error) {
	raw, err := k.key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return atcrypto.ParsePublicUncompressedBytesP256(raw)
}

// HashAndSign implements atcrypto.PrivateKey: the 64-byte signature with the lower of the two
// possible S, as AT Protocol demands.
func (k *signingKey) HashAndSign(content []byte) ([]byte, error) {
	digest := sha256.Sum256(content)
	der, err := k.key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &sig); err != nil {
		return nil, fmt.Errorf("read signature: %w", err)
	}
	order := elliptic.P256().Params().N
	if sig.S.Cmp(new(big.Int).Rsh(order, 1)) > 0 {
		sig.S.Sub(order, sig.S)
	}
	out := make([]byte, 64)
	sig.R.FillBytes(out[:32])
	sig.S.FillBytes(out[32:])
	return out, nil
}
