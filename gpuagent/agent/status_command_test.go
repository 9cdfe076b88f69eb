// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/gpuagent/status"
)

// newStatusNode returns a folder with a simulated driver's socket, and an agent's configuration file.
func newStatusNode(t *testing.T) (dir, file string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "status") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	gpus, err := simulator.New(simulator.Config{
		Seed: "status",
		GPUs: []simulator.GPU{{Model: "A100-40GB", Mode: nvml.Enabled}, {Model: "A30"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "nvml.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = simulator.Serve(ctx, listener, gpus) })
	t.Cleanup(func() { cancel(); group.Wait() })
	file = filepath.Join(dir, "gpuagent.yaml")
	text := strings.ReplaceAll("apiVersion: config.sluice.dev/v1alpha1\nkind: GPUAgentConfig\nnodeName: dgx-01\n"+
		"driver: {library: DIR/nvml.sock}\npodResources: DIR/none.sock\nstateDir: DIR\n", "DIR", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

func openSimulator(d Driver) nvml.Library { return simulator.Dial(d.Library) }

func callStatus(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = StatusMain(t.Context(), args, &out, &err, openSimulator)
	return code, out.String(), err.String()
}

func TestStatusFallsBackToDriver(t *testing.T) {
	_, file := newStatusNode(t)
	code, out, errs := callStatus(t, "--config", file)
	if code != 0 || !strings.Contains(out, "dgx-01   2 GPUs") || !strings.Contains(out, "|........|") || !strings.Contains(out, "whole") {
		t.Errorf("%d, %s\n%s", code, errs, out)
	}
	if !strings.Contains(errs, "no agent answers") || !strings.Contains(out, "the assignment of devices to pods is unknown") {
		t.Errorf("the output lacks what is missing: %s\n%s", errs, out)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colors without a terminal")
	}
}

func TestStatusFromAgent(t *testing.T) {
	dir, file := newStatusNode(t)
	listener, err := net.Listen("unix", filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(status.Node{Name: "from-agent", GPUs: []status.GPU{}, Processes: []status.Process{}})
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	code, out, errs := callStatus(t, "--config", file, "--output", "json")
	var got status.Node
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || got.Name != "from-agent" || errs != "" {
		t.Errorf("%d, %v, %s\n%s", code, err, errs, out)
	}
}

func TestStatusRejectsInvalidArguments(t *testing.T) {
	_, file := newStatusNode(t)
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"another output": {[]string{"--config", file, "--output", "xml"}, 2, "want json"},
		"an argument":    {[]string{"gpus"}, 2, "want flags only"},
		"a flag":         {[]string{"--gpus"}, 2, "gpus"},
		"broken file":    {[]string{"--config", broken}, 2, "configuration"},
		"help":           {[]string{"--help"}, 0, "no-color"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, _, errs := callStatus(t, tc.args...)
			if code != tc.code || !strings.Contains(errs, tc.want) {
				t.Errorf("%d, %s; want %d and %q", code, errs, tc.code, tc.want)
			}
		})
	}
}

func TestStatusUsesDefaultsWithoutConfig(t *testing.T) {
	cfg, err := loadConfig(filepath.Join(t.TempDir(), "none.yaml"))
	if err != nil || cfg.Socket() != "/var/lib/sluice/gpuagent/agent.sock" {
		t.Errorf("%+v, %v", cfg, err)
	}
}
