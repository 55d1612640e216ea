package client

import (
	"context"
	"net"
	"time"
)

// DialBy has a client make its connections in another way.
func (c *Client) DialBy(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.hooks.dial = dial
}

// SetPatience shortens how long a client that was served goes on asking a server that refuses it.
func (c *Client) SetPatience(d time.Duration) { c.patience = d }

// Updates counts the options that the client was given.
func (c *Client) Updates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// HoldWrites blocks all writes to the connection that there is, until release is called.
func (c *Client) HoldWrites() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.writeMu.Lock()
	return c.conn.writeMu.Unlock
}

// BuiltInDictionary is the ID of the dictionary that a millrace is asked for.
const BuiltInDictionary = builtInDictionary
