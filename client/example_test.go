// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/caisson-run/caisson/client"
)

// A sandbox for ten minutes, a program in it, and its end.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{Key: os.Getenv("CAISSON_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	box, err := c.Create(ctx, client.Create{Timeout: client.In(10 * time.Minute)})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Kill(ctx, box.ID)
	res, err := c.Exec(ctx, box.ID, client.Exec{Command: []string{"python3", "-c", "print(2**100)"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s", res.Status, res.Stdout)
}

// What a program writes, as it writes it.
func ExampleClient_Attach() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: "https://caisson.example.com", Key: os.Getenv("CAISSON_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Attach(ctx, "i0123456789abcdefghij", client.Exec{Command: []string{"make", "test"}, Cwd: "/home/user"},
		client.IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		log.Fatal(err)
	}
}
