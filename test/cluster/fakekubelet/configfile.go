// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/config"
)

const kind = "FakeKubeletConfig"

// configFile is the file's form: strict, and with its version.
type configFile struct {
	metav1.TypeMeta `json:",inline"`
	Config          `json:",inline"`
}

// LoadConfig reads a configuration file (YAML, apiVersion config.sluice.dev/v1alpha1,
// kind FakeKubeletConfig) and the kubeconfig that it names. Paths in it are
// relative to the file. A field that it should not have is an error.
func LoadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	c, err := parseConfig(raw)
	if err != nil {
		return Config{}, fmt.Errorf("fake kubelet's configuration %s: %w", path, err)
	}
	base := filepath.Dir(path)
	c.Dir, c.Kubeconfig = from(base, c.Dir), from(base, c.Kubeconfig)
	if c.API, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return Config{}, fmt.Errorf("fake kubelet's configuration %s: kubeconfig: %w", path, err)
	}
	return c, nil
}

// WriteConfig writes a configuration file (0600) that LoadConfig reads. API and
// Log are not in it.
func WriteConfig(path string, c Config) error {
	if err := checkFile(c); err != nil {
		return fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	raw, err := yaml.Marshal(configFile{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: kind},
		Config:   c,
	})
	if err != nil {
		return fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	return nil
}

func parseConfig(raw []byte) (Config, error) {
	var file configFile
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return Config{}, err
	}
	if file.APIVersion != config.APIVersion || file.Kind != kind {
		return Config{}, fmt.Errorf("apiVersion %q and kind %q: must be %s and %s", file.APIVersion, file.Kind, config.APIVersion, kind)
	}
	return file.Config, checkFile(file.Config)
}

func checkFile(c Config) error {
	if c.Kubeconfig == "" {
		return errors.New("kubeconfig: is empty; name the file that the API server is reached with")
	}
	return c.Validate()
}

func from(base, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}
