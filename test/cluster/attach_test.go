// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAttachErrors(t *testing.T) {
	t.Setenv(AttachVariable, "")
	dead := filepath.Join(t.TempDir(), "dead")
	port := freePort(t)
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: x\n" +
		"clusters: [{name: x, cluster: {server: 'https://" + address(port) + "'}}]\n" +
		"contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n"
	if err := os.WriteFile(dead, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, path, want string }{
		{"no kubeconfig", "", "name a kubeconfig, or set SLUICE_KUBECONFIG"},
		{"no such file", "/nowhere/config", "/nowhere/config: no such file"},
		{"not a kubeconfig", "/etc/hostname", "attach to a cluster: read kubeconfig"},
		{"no response", dead, "attach to the cluster of " + dead},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Attach(t.Context(), tt.path)
			if err == nil {
				c.Stop()
				t.Fatal("Attach succeeded")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}
