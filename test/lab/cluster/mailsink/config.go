// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/config"
)

const kind = "MailSinkConfig"

// Config configures the mail sink.
type Config struct {
	// Listen is the address, an IP of loopback and a port.
	Listen string `json:"listen"`
	// Dir is the folder of the mails. Run creates it if necessary.
	Dir string `json:"dir"`
	// Certificates is the folder with tls.crt and tls.key.
	Certificates string `json:"certificates"`
	// Username and Password are the credentials of clients.
	Username string `json:"username"`
	Password string `json:"password"`
}

// configFile is the format of the file, with its version.
type configFile struct {
	metav1.TypeMeta `json:",inline"`
	Config          `json:",inline"`
}

// Validate returns an error that lists all invalid fields.
func (c Config) Validate() error {
	var errs []error
	host, _, err := net.SplitHostPort(c.Listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		errs = append(errs, fmt.Errorf("listen %q: must be a loopback address and a port, such as 127.0.0.1:2525", c.Listen))
	}
	for name, value := range map[string]string{
		"dir": c.Dir, "certificates": c.Certificates, "username": c.Username,
		"password": c.Password,
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s: is empty", name))
		}
	}
	return errors.Join(errs...)
}

// LoadConfig reads a configuration file (YAML, apiVersion config.sluice.dev/v1alpha1, kind
// MailSinkConfig). Its paths are relative to the file. Unknown fields are errors.
func LoadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("mail sink's configuration: %w", err)
	}
	var file configFile
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return Config{}, fmt.Errorf("mail sink's configuration %s: %w", path, err)
	}
	if file.APIVersion != config.APIVersion || file.Kind != kind {
		return Config{}, fmt.Errorf("mail sink's configuration %s: apiVersion %q and kind %q: must be %s and %s", path,
			file.APIVersion, file.Kind, config.APIVersion, kind)
	}
	c := file.Config
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("mail sink's configuration %s: %w", path, err)
	}
	for _, dir := range []*string{&c.Dir, &c.Certificates} {
		if !filepath.IsAbs(*dir) {
			*dir = filepath.Join(filepath.Dir(path), *dir)
		}
	}
	return c, nil
}

// WriteConfig writes a configuration file that LoadConfig reads. Only its owner may read
// it, since it contains the password.
func WriteConfig(path string, c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("mail sink's configuration: %w", err)
	}
	raw, err := yaml.Marshal(configFile{TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: kind}, Config: c})
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("mail sink's configuration: %w", err)
	}
	return nil
}
