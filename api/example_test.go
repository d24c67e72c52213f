package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/bide-dev/bide/api"
	"github.com/bide-dev/bide/sqlite"
)

// A server that people can start runs with. It asks nobody who they are: put what
// does in front of it.
func ExampleNewHandler() {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		panic(err)
	}
	defer store.Close()
	h := api.NewHandler(store, api.Config{})
	server := httptest.NewUnstartedServer(h)
	server.Config.RegisterOnShutdown(h.Close)
	server.Start()
	defer server.Close()

	resp, err := http.Post(server.URL+"/v1/runs", "application/json", strings.NewReader(`{"workflow":"greet","id":"first","input":"ann"}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	fmt.Println(resp.Status, resp.Header.Get("Location"))
	// Output: 202 Accepted /v1/runs/first
}
