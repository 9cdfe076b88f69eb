// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/gpuagent/nvml"
)

// sendBytes sends bytes to a server and returns its answer.
func sendBytes(t testing.TB, sent []byte) string {
	t.Helper()
	n, err := New(Config{
		GPUs:  []GPU{{Model: "A30", UUID: "GPU-1", Mode: nvml.Enabled}},
		Order: StableOrder,
	})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go func() {
		near.Write(sent) // until the server closes
		near.Write([]byte("\n"))
		near.Write([]byte("this ends it\n"))
	}()
	done := make(chan struct{})
	go func() { defer close(done); handleConnection(t.Context(), far, n.Open()) }()
	answered, _ := io.ReadAll(near)
	near.Close()
	<-done
	if err := n.Check(); err != nil {
		t.Error(err)
	}
	return string(answered)
}

func TestHostileBytes(t *testing.T) {
	for _, test := range []struct{ name, sent, want string }{
		{"an unknown method", `{"method":"Explode"}`, `no method \"Explode\"`},
		{"no method", `{}`, `no method \"\"`},
		{"no call", `hello`, `"code":999,"text":"a line is not a message`},
		{"an unknown field", `{"method":"Init","sudo":true}`, `unknown field \"sudo\"`},
		{"two calls on a line", `{"method":"Init"}{"method":"Init"}`, "more than one message"},
		{"a number too big", `{"method":"DestroyInstance","instance":4294967296}`, "cannot unmarshal number"},
		{"a number below zero", `{"method":"DestroyInstance","instance":-1}`, "cannot unmarshal number"},
		{"an endless line", strings.Repeat("x", maxLineBytes+1), "a line is longer than"},
		{"a deep line", strings.Repeat("[", 20000), "a line is not a message"},
		{"a call before Init", `{"method":"Reset","gpu":"GPU-1"}`, `"code":1`},
		{"a place that is none", "{\"method\":\"Init\"}\n" +
			`{"method":"CreateInstance","gpu":"GPU-1","profile":14,"at":{"Start":-9223372036854775808,"Size":1}}`, `"code":2`},
		{"no place", "{\"method\":\"Init\"}\n" + `{"method":"CreateInstance","gpu":"GPU-1","profile":14}`, `"code":2`},
		{"zeros", string(make([]byte, 1000)), "invalid character"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := sendBytes(t, []byte(test.sent)); !strings.Contains(got, test.want) {
				t.Errorf("answered %s, want %s", got, test.want)
			}
		})
	}
}

// FuzzServer sends random bytes.
func FuzzServer(f *testing.F) {
	f.Add([]byte("{\"method\":\"Init\"}\n{\"method\":\"CreateInstance\",\"gpu\":\"GPU-1\",\"profile\":14,\"at\":{\"Start\":1,\"Size\":1}}"))
	f.Add([]byte("{\"method\":\"Init\"}\n{\"method\":\"SetMIGMode\",\"gpu\":\"GPU-1\",\"mode\":true}\n{\"method\":\"GPUs\"}\n\n"))
	f.Add([]byte("\x00\xff{"))
	f.Fuzz(func(t *testing.T, sent []byte) { sendBytes(t, sent) })
}

// FuzzClient answers with random bytes: the client returns a result, or an error of the driver.
func FuzzClient(f *testing.F) {
	f.Add([]byte(`{"result":[{"UUID":"GPU-1","Err":{"code":15,"text":"lost"}}]}`))
	f.Add([]byte(`{"error":{"code":0}}`))
	f.Add([]byte(`{"result":{"Err":3}}`))
	dir, err := os.MkdirTemp("", "nvml")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "nvml.sock")
	listener, err := Listen(f.Context(), path)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { listener.Close() })
	f.Fuzz(func(t *testing.T, answered []byte) {
		go func() { // one server that answers Init, then this, and closes
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			defer connection.Close()
			lines := bufio.NewReader(connection)
			lines.ReadString('\n')
			connection.Write([]byte(`{"result":null}` + "\n"))
			lines.ReadString('\n')
			connection.Write(append(answered, '\n'))
		}()
		c := Dial(path)
		l, err := c.connect()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var gpus []gpuResult
		if err := l.call(&request{Method: "GPUs"}, &gpus, c.callTimeout()); err != nil {
			if driver := nvml.Error(0); !errors.As(err, &driver) || driver == 0 || err.Error() == "" {
				t.Errorf("%v is no error of the driver", err)
			}
		}
	})
}
