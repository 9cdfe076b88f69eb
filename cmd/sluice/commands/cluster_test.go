// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/policytime"
)

// parseClusterFlags returns the flags of a command with arguments.
func parseClusterFlags(t *testing.T, args ...string) (*clusterFlags, *cobra.Command) {
	t.Helper()
	cmd := &cobra.Command{}
	flags := addClusterFlags(cmd, listScope)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return flags, cmd
}

func connectWith(t *testing.T, args ...string) (*clusterClient, error) {
	t.Helper()
	flags, cmd := parseClusterFlags(t, args...)
	return flags.connect(cmd)
}

func clockOffset(c policytime.Clock) time.Duration { return time.Until(c.Now()).Round(time.Hour) }

func TestConnectUsesClockOfSelectedCluster(t *testing.T) {
	near, far := newEmbeddedDir(t, time.Hour), newEmbeddedDir(t, 48*time.Hour)
	nearConfig, farConfig := writeKubeconfig(t, near, "near", "lab"), writeKubeconfig(t, far, "far", "")
	otherConfig := writeKubeconfig(t, t.TempDir(), "real", "")
	list := string(filepath.ListSeparator)
	tests := map[string]struct {
		env   string
		args  []string
		ahead time.Duration
		host  string
		dir   string // empty for no embedded cluster
	}{
		"the kubeconfig's folder":         {nearConfig, nil, time.Hour, "near", near},
		"a named kubeconfig":              {nearConfig, []string{"--kubeconfig", farConfig}, 48 * time.Hour, "far", far},
		"a named folder":                  {otherConfig, []string{"--dir", far}, 48 * time.Hour, "far", far},
		"a folder and another kubeconfig": {nearConfig, []string{"--dir", far, "--kubeconfig", otherConfig}, 48 * time.Hour, "real", far},
		"no embedded cluster":             {otherConfig, nil, 0, "real", ""},
		"the first of several":            {nearConfig + list + farConfig, nil, time.Hour, "near", near},
		"a context of the second":         {nearConfig + list + farConfig, []string{"--context", "far"}, 48 * time.Hour, "far", far},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			c, err := connectWith(t, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := clockOffset(c.clock); got != tc.ahead {
				t.Errorf("policy time is %v ahead, want %v", got, tc.ahead)
			}
			if want := "https://" + tc.host + ":6443"; c.config.Host != want {
				t.Errorf("the client connects to %s, want %s", c.config.Host, want)
			}
			flags, _ := parseClusterFlags(t, tc.args...)
			if dir, err := flags.embeddedDir(); dir != tc.dir || (tc.dir == "") != errors.Is(err, errNotEmbedded) {
				t.Errorf("the embedded cluster is in %q, %v; want %q", dir, err, tc.dir)
			}
		})
	}
}

func TestConnectNamespaceDefaultsToContext(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t, t.TempDir(), "real", "lab"))
	for args, want := range map[string]string{"": "lab", "-n thesis": "thesis", "-A": ""} {
		c, err := connectWith(t, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		if c.namespace != want {
			t.Errorf("with %q the namespace is %q, want %q", args, c.namespace, want)
		}
	}
}

func TestConnectErrors(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := newEmbeddedDir(t, time.Hour)
	outside := writeKubeconfig(t, t.TempDir(), "real", "")
	brokenConfig := writeKubeconfig(t, broken, "broken", "")
	if err := os.WriteFile(filepath.Join(broken, policytime.FileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		env  string
		args []string
		want string
	}{
		"nothing configured":         {filepath.Join(home, "none"), nil, "--kubeconfig"},
		"a folder without a cluster": {outside, []string{"--dir", home, "--kubeconfig", outside}, "no embedded cluster"},
		"an unknown context":         {outside, []string{"--context", "moon"}, "moon"},
		"a damaged clock":            {brokenConfig, nil, "policy time"},
		"a missing kubeconfig":       {outside, []string{"--kubeconfig", filepath.Join(home, "none")}, "none"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			if _, err := connectWith(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want it to contain %q", err, tc.want)
			}
		})
	}
}
