// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Each command for a cluster has every flag that kubectl has.
func TestCommandsHaveAllFlagsOfKubectl(t *testing.T) {
	kubectl := &cobra.Command{}
	flags := genericclioptions.NewConfigFlags(true)
	flags.Namespace = nil // some commands have no namespace
	flags.AddFlags(kubectl.Flags())
	names := connectionFlags(&clusterFlags{ConfigFlags: flags})
	if len(names) < 18 {
		t.Fatalf("kubectl has %d flags", len(names))
	}
	found := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			check(child)
		}
		if cmd.Flags().Lookup("dir") == nil || cmd.Flags().Lookup("kubeconfig") == nil {
			return
		}
		found++
		for _, flag := range names {
			if got := cmd.Flags().Lookup(flag.Name); got == nil || got.Usage != flag.Usage {
				t.Errorf("%s has no flag --%s of kubectl", cmd.CommandPath(), flag.Name)
			}
		}
		if !hasConnectionFlags(cmd) || strings.Contains(cmd.UsageString(), "--tls-server-name") || !strings.Contains(cmd.UsageString(), "sluice options") {
			t.Errorf("the help of %s lists flags that belong to `sluice options`:\n%s", cmd.CommandPath(), cmd.UsageString())
		}
	}
	check(NewRootCommand())
	if found < 20 {
		t.Errorf("%d commands have flags for a cluster", found)
	}
	output, err := runCommand(t, "options")
	for _, flag := range names {
		if err != nil || !strings.Contains(output, "--"+flag.Name) {
			t.Errorf("`sluice options` lacks --%s: %v", flag.Name, err)
		}
	}
}

func TestConnectUsesFlagsOfKubectl(t *testing.T) {
	config := clientcmdapi.NewConfig()
	for _, name := range []string{"near", "far"} {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + ":6443"}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "token-of-" + name}
	}
	config.CurrentContext = "near"
	path := t.TempDir() + "/config"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	type connection struct {
		Host, Token string
		As          rest.ImpersonationConfig
		Insecure    bool
		Timeout     time.Duration
	}
	near := connection{Host: "https://near:6443", Token: "token-of-near", Timeout: requestTimeout}
	with := func(change func(*connection)) connection {
		c := near
		change(&c)
		return c
	}
	tests := map[string]struct {
		args []string
		want connection
	}{
		"none": {nil, near},
		"impersonation": {
			[]string{"--as", "anna", "--as-group", "course", "--as-group", "staff", "--as-uid", "17"},
			with(func(c *connection) {
				c.As = rest.ImpersonationConfig{UserName: "anna", UID: "17", Groups: []string{"course", "staff"}}
			}),
		},
		"a cluster":        {[]string{"--cluster", "far"}, with(func(c *connection) { c.Host = "https://far:6443" })},
		"a user":           {[]string{"--user", "far"}, with(func(c *connection) { c.Token = "token-of-far" })},
		"a token":          {[]string{"--token", "mine"}, with(func(c *connection) { c.Token = "mine" })},
		"a server":         {[]string{"-s", "https://other"}, with(func(c *connection) { c.Host = "https://other" })},
		"no certificate":   {[]string{"--insecure-skip-tls-verify"}, with(func(c *connection) { c.Insecure = true })},
		"a timeout":        {[]string{"--request-timeout", "2s"}, with(func(c *connection) { c.Timeout = 2 * time.Second })},
		"without timeout":  {[]string{"--request-timeout", "0"}, with(func(c *connection) { c.Timeout = 0 })},
		"without a config": {[]string{"--kubeconfig", "/dev/null", "-s", "https://other"}, connection{Host: "https://other", Timeout: requestTimeout}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := connectWith(t, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			got := connection{c.config.Host, c.config.BearerToken, c.config.Impersonate, c.config.Insecure, c.config.Timeout}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("connection differs (-want +got):\n%s", diff)
			}
		})
	}
}

// A server that --server names is not the embedded cluster of the kubeconfig, whose policy time differs.
func TestServerFlagLeavesEmbeddedCluster(t *testing.T) {
	dir := newEmbeddedDir(t, time.Hour)
	t.Setenv("KUBECONFIG", writeKubeconfig(t, dir, "near", ""))
	for server, want := range map[string]time.Duration{"https://near:6443": time.Hour, "https://other": 0} {
		c, err := connectWith(t, "--server", server)
		if err != nil {
			t.Fatal(err)
		}
		if got := clockOffset(c.clock); got != want {
			t.Errorf("with --server %s policy time is %v ahead, want %v", server, got, want)
		}
	}
}
