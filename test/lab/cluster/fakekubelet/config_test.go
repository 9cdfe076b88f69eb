// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sluice.dev/test/lab/cluster/fakekubelet/streaming"
)

const configYAML = `apiVersion: config.sluice.dev/v1alpha1
kind: FakeKubeletConfig
kubeconfig: api.kubeconfig
dir: state
streams: {certificate: tls/kubelet.crt, key: tls/kubelet.key, clientCA: ca.crt, client: kube-apiserver-kubelet-client}
nodes:
- name: dgx-1
  pool: dgx
  machine:
    model: DGXA100-920-23687-2530-000
    gpuModel: A100-40GB
    gpus: 8
    cpus: 256
    hostMemoryGiB: 1024
    diskGiB: 1760
- name: dgx-2
  pool: dgx-mig
  machine:
    model: DGXA100-920-23687-2530-000
    gpuModel: A100-40GB
    gpus: 8
    cpus: 256
    hostMemoryGiB: 1024
    diskGiB: 1760
    mig:
    - instances:
      - {profile: 2g.10gb, start: 0}
      - {profile: 1g.5gb, start: 2}
      - {profile: 1g.5gb, start: 3}
      - {profile: 3g.20gb, start: 4}
- name: dgx-3
  pool: dgx-mig
  machine:
    model: DGXA100-920-23687-2530-000
    gpuModel: A100-40GB
    gpus: 8
    cpus: 256
    hostMemoryGiB: 1024
    diskGiB: 1760
    mig: [{}]
`

// writeConfigFile writes a kubeconfig and a configuration into a folder.
func writeConfigFile(t *testing.T, content string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:6443"}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	kubeconfig.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*kubeconfig, filepath.Join(dir, "api.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

func TestLoadConfig(t *testing.T) {
	dir, path := writeConfigFile(t, configYAML)
	got, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Kubeconfig: filepath.Join(dir, "api.kubeconfig"),
		Dir:        filepath.Join(dir, "state"),
		Streams: &streaming.Config{
			Certificate: filepath.Join(dir, "tls", "kubelet.crt"), Key: filepath.Join(dir, "tls", "kubelet.key"),
			ClientCA: filepath.Join(dir, "ca.crt"), Client: "kube-apiserver-kubelet-client",
		},
		Nodes: []Node{DGXA100("dgx-1", "dgx"), DGXA100Balanced("dgx-2", "dgx-mig"), DGXA100MIG("dgx-3", "dgx-mig")},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Config{}, "API", "Log")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.API == nil || got.API.Host != "https://127.0.0.1:6443" {
		t.Errorf("API is %+v", got.API)
	}

	again := filepath.Join(t.TempDir(), "again.yaml")
	if err := WriteConfig(again, got); err != nil {
		t.Fatal(err)
	}
	second, err := LoadConfig(again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, second, cmpopts.IgnoreFields(Config{}, "API", "Log")); diff != "" {
		t.Errorf("written and loaded again (-want +got):\n%s", diff)
	}
}

func TestLoadConfigRefuses(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"an unknown field", "dir: state", "dir: state\ncolor: red", `unknown field "color"`},
		{"a field twice", "dir: state", "dir: state\ndir: other", `key "dir" already set`},
		{"another kind", "kind: FakeKubeletConfig", "kind: Pod", `apiVersion "config.sluice.dev/v1alpha1" and kind "Pod": must be`},
		{"no folder", "dir: state", "dir: ''", "dir: is empty"},
		{"no kubeconfig", "kubeconfig: api.kubeconfig", "", "kubeconfig: is empty"},
		{"a missing kubeconfig", "api.kubeconfig", "other.kubeconfig", "other.kubeconfig"},
		{"no nodes", configYAML[strings.Index(configYAML, "nodes:"):], "", "nodes: is empty"},
		{"streams without a key", "key: tls/kubelet.key, ", "", "streams.key: is empty"},
		{"streams without a client", ", client: kube-apiserver-kubelet-client", "", "streams.client: is empty"},
		{"a repeated node name", "name: dgx-2", "name: dgx-1", `nodes[1].name "dgx-1": is nodes[0]'s already`},
		{"an invalid node name", "name: dgx-2", "name: ../dgx", `nodes[1].name "../dgx"`},
		{"an invalid pool name", "pool: dgx-mig", "pool: ''", `nodes[1].pool ""`},
		{"an invalid machine", "start: 4", "start: 3", "nodes[1].machine.mig[0].instances: 3g.20gb cannot start at 3 on A100-40GB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, path := writeConfigFile(t, strings.Replace(configYAML, tc.old, tc.new, 1))
			_, err := LoadConfig(path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with the file's path and %q", err, tc.want)
			}
		})
	}
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("LoadConfig read a missing file")
	}
	if err := WriteConfig(filepath.Join(t.TempDir(), "c.yaml"), Config{}); err == nil {
		t.Error("WriteConfig wrote an empty configuration")
	}
}
