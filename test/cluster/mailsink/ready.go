// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// Serves returns a question to the sink at an address: nil means that it takes mail.
func Serves(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer connection.Close()
		if until, ok := ctx.Deadline(); ok {
			if err := connection.SetDeadline(until); err != nil {
				return err
			}
		}
		greeting := make([]byte, 128)
		n, err := connection.Read(greeting)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(string(greeting[:n]), "220 ") {
			return fmt.Errorf("%s does not greet as a mail server does", address)
		}
		return nil
	}
}
