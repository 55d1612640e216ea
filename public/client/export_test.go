package client

import "time"

// SetPatience shortens how long a client that was served goes on asking a server that refuses it.
func (c *Client) SetPatience(d time.Duration) { c.patience = d }

// Updates counts the options that the client was given.
func (c *Client) Updates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// HoldWrites keeps everybody from writing to the connection that there is, until release is called.
func (c *Client) HoldWrites() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.writeMu.Lock()
	return c.conn.writeMu.Unlock
}

// BuiltInDictionary is the ID of the dictionary that a millrace is asked for.
const BuiltInDictionary = builtInDictionary
