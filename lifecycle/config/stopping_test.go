// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/api/config"
)

func TestRetryInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 30 * time.Second, "stopping: {retryInterval: 1s}": time.Second} {
		var c Config
		if err := config.Parse([]byte(configHeader+text), &c); err != nil || c.Stopping.RetryInterval.Duration != want {
			t.Errorf("%q: %s, %v; want %s", text, c.Stopping.RetryInterval.Duration, err, want)
		}
	}
	for _, value := range []string{"-1s", "10ms", "11m"} {
		var c Config
		err := config.Parse([]byte(configHeader+"stopping: {retryInterval: "+value+"}"), &c)
		if err == nil || !strings.Contains(err.Error(), "stopping.retryInterval") {
			t.Errorf("%s: %v", value, err)
		}
	}
}
