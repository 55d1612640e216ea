// Package translate turns a relay's frames into the JSON events that subscribers see.
package translate
