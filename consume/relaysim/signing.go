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
	var key atcrypto.PrivateKey
	raw, k256 := privateBytes(did)
	var err error
	if k256 {
		key, err = atcrypto.ParsePrivateBytesK256(raw)
	} else {
		key, err = atcrypto.ParsePrivateBytesP256(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key.PublicKey()
}

// privateBytes returns the private key of an account, which follows from its DID, and its curve.
func privateBytes(did string) (raw []byte, k256 bool) {
	sum := sha256.Sum256([]byte("signing key of " + did))
	sum[0] &= 0x7f // below the order of either group
	return sum[:], sum[31]&1 == 0
}

// signingKey is the key of an account. Unlike indigo's keys it signs deterministically (RFC 6979),
// so that a world is a function of its seed. It stands in for them where commits are signed, of
// which only HashAndSign is ever called.
type signingKey struct {
	atcrypto.PrivateKey
	k256 *secec.PrivateKey // nil: p256 signs
	p256 *ecdsa.PrivateKey
}

func newSigningKey(did string) (key *signingKey, err error) {
	key = &signingKey{}
	raw, k256 := privateBytes(did)
	if k256 {
		key.k256, err = secec.NewPrivateKey(raw)
	} else {
		key.p256, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	}
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	return key, nil
}

// HashAndSign implements atcrypto.PrivateKey: the 64-byte signature with the lower of the two
// possible S, as AT Protocol demands.
func (k *signingKey) HashAndSign(content []byte) ([]byte, error) {
	digest := sha256.Sum256(content)
	if k.k256 != nil { // the library makes low S only
		return k.k256.Sign(secec.RFC6979SHA256(), digest[:], &secec.ECDSAOptions{Hash: crypto.SHA256, Encoding: secec.EncodingCompact})
	}
	der, err := k.p256.Sign(nil, digest[:], crypto.SHA256)
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
