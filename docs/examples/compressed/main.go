// Compressed prints a server's events, which come compressed with millrace's built-in dictionary:
//
//	go run ./docs/examples/compressed [ws://localhost:6008] [number of events]
//
// It needs nothing of millrace but the server.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"
)

// dictionaryID is the built-in dictionary, which every millrace serves. /dictionaries lists all.
const dictionaryID = 51001

func main() {
	server, count := "ws://localhost:6008", 0
	if len(os.Args) > 1 {
		server = os.Args[1]
	}
	if len(os.Args) > 2 {
		count, _ = strconv.Atoi(os.Args[2])
	}
	if err := run(server, count); err != nil {
		log.Fatal(err)
	}
}

func run(server string, count int) error {
	web := strings.Replace(server, "ws", "http", 1)
	// The file of an ID never changes: keep it, rather than fetch it each time.
	dictionary, err := get(fmt.Sprintf("%s/dictionaries/%d", web, dictionaryID))
	if err != nil {
		return err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderDicts(dictionary), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer decoder.Close()

	conn, resp, err := websocket.DefaultDialer.Dial(fmt.Sprintf("%s/subscribe?cursor=0&zstdDictionary=%d", server, dictionaryID), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer conn.Close()
	var event []byte
	for n := 0; count == 0 || n < count; n++ {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		if event, err = decoder.DecodeAll(message, event[:0]); err != nil {
			return err
		}
		fmt.Println(string(event))
	}
	return nil
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}
