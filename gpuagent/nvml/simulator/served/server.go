// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// most is how many connections a server has at once; further ones wait.
const most = 128

// Serve answers calls on a node until the context ends, and returns nil then, when
// the calls that were under way have ended; or why nothing more can be
// accepted. It closes the listener. Each connection is a program of its own: what it
// has initialised is not initialised for others.
func Serve(ctx context.Context, listener net.Listener, node *simulator.Node) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	slots := make(chan struct{}, most)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				connection.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		connections.Go(func() {
			defer func() { <-slots }()
			converse(ctx, connection, node.Open())
		})
	}
}

// converse answers the calls of one connection until it ends.
func converse(ctx context.Context, connection net.Conn, library nvml.Library) {
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	lines := bufio.NewReader(connection)
	for {
		var r request
		err := readLine(lines, &r)
		var closed *net.OpError
		if errors.Is(err, io.EOF) || errors.As(err, &closed) {
			return
		}
		answer := reply{Error: refused(err)}
		if err == nil {
			answer = carryOut(library, &r)
		}
		if deadline := connection.SetWriteDeadline(time.Now().Add(10 * time.Second)); deadline != nil {
			return
		}
		// After a line that is no call nothing tells where the next one begins.
		if writeLine(connection, answer) != nil || err != nil {
			return
		}
	}
}

func carryOut(library nvml.Library, r *request) reply {
	answer, err := dispatch(library, r)
	if err != nil {
		return reply{Error: refused(err)}
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return reply{Error: refused(err)}
	}
	return reply{Answer: raw}
}
