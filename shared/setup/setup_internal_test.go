package setup

import (
	"log/slog"
	"strings"
	"testing"
)

// TestOpen gives the program environments. Where one has faults, the error has a
// line for each, which begins with the name of the variable.
func TestOpen(t *testing.T) {
	t.Parallel()
	const table, endpoint = "REDRIVE_TABLE", "AWS_ENDPOINT_URL_DYNAMODB"
	for _, tt := range []struct {
		name string
		env  map[string]string
		want []string // how each line of the error begins; none for an environment that will do
	}{
		{"nothing but a table", map[string]string{table: "redrive"}, nil},
		{"the shortest name", map[string]string{table: "a.1"}, nil},
		{"the longest name", map[string]string{table: strings.Repeat("_-", 127) + "Z"}, nil},
		{"an endpoint", map[string]string{table: "redrive", endpoint: "https://dynamodb.eu-west-1.amazonaws.com"}, nil},
		{"an endpoint in IPv6", map[string]string{table: "redrive", endpoint: "http://[::1]:8000"}, nil},
		{"an empty endpoint, which is none", map[string]string{table: "redrive", endpoint: ""}, nil},
		{
			"S115c sam local with an endpoint",
			map[string]string{table: "redrive", endpoint: "http://dynamodb:8000", "AWS_SAM_LOCAL": "true"},
			nil,
		},
		{"not sam local", map[string]string{table: "redrive", "AWS_SAM_LOCAL": "false"}, nil},

		{"nothing", nil, []string{table + " is not set"}},
		{"a name that is too short", map[string]string{table: "ab"}, []string{table + ` is "ab"`}},
		{"a name that is too long", map[string]string{table: strings.Repeat("a", 256)}, []string{table + ` is "aaa`}},
		{"a name with a blank", map[string]string{table: "my table"}, []string{table + ` is "my table"`}},
		{"a name with a letter of its own", map[string]string{table: "täbelle"}, []string{table + ` is "täbelle"`}},
		{"a name that goes on", map[string]string{table: "redrive\n"}, []string{table + ` is "redrive\n"`}},
		{
			"S115a sam local without an endpoint",
			map[string]string{table: "redrive", "AWS_SAM_LOCAL": "true"},
			[]string{endpoint + " is not set"},
		},
		{"an endpoint without a scheme", map[string]string{table: "redrive", endpoint: "localhost:8000"}, []string{
			endpoint + ` is "localhost:8000"`,
		}},
		{"an address without a scheme", map[string]string{table: "redrive", endpoint: "127.0.0.1:8000"}, []string{
			endpoint + ` is "127.0.0.1:8000"`,
		}},
		{"an endpoint without a host", map[string]string{table: "redrive", endpoint: "http:///x"}, []string{
			endpoint + ` is "http:///x"`,
		}},
		{"another scheme", map[string]string{table: "redrive", endpoint: "ftp://dynamodb:8000"}, []string{
			endpoint + ` is "ftp://dynamodb:8000"`,
		}},
		{"no URL", map[string]string{table: "redrive", endpoint: "http://dynamodb:8000\x00"}, []string{endpoint + " is"}},
		{
			"two faults",
			map[string]string{endpoint: "dynamodb", "AWS_SAM_LOCAL": "true"},
			[]string{table + " is not set", endpoint + ` is "dynamodb"`},
		},
		{"two that are missing", map[string]string{"AWS_SAM_LOCAL": "true"}, []string{
			table + " is not set", endpoint + " is not set",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			getenv := func(name string) string { return tt.env[name] }
			store, err := open(t.Context(), getenv, slog.New(slog.DiscardHandler))
			if len(tt.want) == 0 {
				if err != nil || store == nil || store.Table != tt.env[table] {
					t.Fatalf("open = %+v, %v, want a store on table %q", store, err, tt.env[table])
				}
				return
			}
			if err == nil || store != nil {
				t.Fatalf("open = %+v, %v, want no store and an error", store, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("open = %q, want %d lines", err, len(tt.want))
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("line %d of the error is %q, want %q", i+1, line, tt.want[i])
				}
			}
		})
	}
}
