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
	"gitlab.com/yawning/secp256k1-voi/secec"
)

// PublicKey returns the key that an account signs with, in every world. Half the accounts have one
// of curve P-256, the others of K-256.
func PublicKey(did string) (atcrypto.PublicKey, error) {
	key, err := newSigningKey(did)
	if err != nil {
		return nil, err
	}
	return key.PublicKey()
}

// newSigningKey returns the key of an account, which follows from its DID. Unlike indigo's keys it
// signs deterministically (RFC 6979), so that a world is a function of its seed.
func newSigningKey(did string) (atcrypto.PrivateKey, error) {
	raw := sha256.Sum256([]byte("signing key of " + did))
	raw[0] &= 0x7f // below the order of either group
	if raw[31]&1 == 0 {
		key, err := secec.NewPrivateKey(raw[:])
		if err != nil {
			return nil, fmt.Errorf("make signing key: %w", err)
		}
		return &k256Key{key}, nil
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw[:])
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	return &p256Key{key}, nil
}

// k256Key implements atcrypto.PrivateKey.
type k256Key struct{ key *secec.PrivateKey }

// Equal implements atcrypto.PrivateKey.
func (k *k256Key) Equal(other atcrypto.PrivateKey) bool {
	o, ok := other.(*k256Key)
	return ok && k.key.Equal(o.key)
}

// PublicKey implements atcrypto.PrivateKey.
func (k *k256Key) PublicKey() (atcrypto.PublicKey, error) {
	return atcrypto.ParsePublicUncompressedBytesK256(k.key.PublicKey().Bytes())
}

// HashAndSign implements atcrypto.PrivateKey. The library makes low S only.
func (k *k256Key) HashAndSign(content []byte) ([]byte, error) {
	digest := sha256.Sum256(content)
	return k.key.Sign(secec.RFC6979SHA256(), digest[:], &secec.ECDSAOptions{Hash: crypto.SHA256, Encoding: secec.EncodingCompact})
}

// p256Key implements atcrypto.PrivateKey.
type p256Key struct{ key *ecdsa.PrivateKey }

// Equal implements atcrypto.PrivateKey.
func (k *p256Key) Equal(other atcrypto.PrivateKey) bool {
	o, ok := other.(*p256Key)
	return ok && k.key.Equal(o.key)
}

// PublicKey implements atcrypto.PrivateKey.
func (k *p256Key) PublicKey() (atcrypto.PublicKey, error) {
	raw, err := k.key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return atcrypto.ParsePublicUncompressedBytesP256(raw)
}

// HashAndSign implements atcrypto.PrivateKey: the 64-byte signature with the lower of the two
// possible S, as AT Protocol demands.
func (k *p256Key) HashAndSign(content []byte) ([]byte, error) {
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
