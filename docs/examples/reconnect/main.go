// Reconnect prints the events of several servers: go run ./docs/examples/reconnect URL …
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"millrace/public/client"
)

func main() {
	c, err := client.New(client.Config{URLs: os.Args[1:], Cursor: "0"}) // "": what comes from now on
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range c.Events(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(event.Raw)) // then store event.Cursor
	}
}
