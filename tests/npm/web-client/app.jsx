// A page around Shlink's web component, with the server form of its web client: the base URL of a server and an API key,
// which the browser keeps. A build of it runs on an origin of its own, as Shlink's web client does.

import { useMemo, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router';
import { ShlinkApiClient } from '@shlinkio/shlink-js-sdk';
import { FetchHttpClient } from '@shlinkio/shlink-js-sdk/fetch';
import { ShlinkSidebarVisibilityProvider, ShlinkWebComponent } from '@shlinkio/shlink-web-component';

const stored = JSON.parse(localStorage.getItem('server') ?? 'null');

function Connect({ onConnected }) {
  const [error, setError] = useState('');
  const connect = async (event) => {
    event.preventDefault();
    const server = Object.fromEntries(new FormData(event.target));
    try {
      const { version } = await new ShlinkApiClient(new FetchHttpClient(), server).health();
      localStorage.setItem('server', JSON.stringify({ ...server, version }));
      onConnected({ ...server, version });
    } catch (failure) {
      setError(`Oops! Could not connect to this Shlink server. ${failure}`);
    }
  };
  return (
    <form onSubmit={connect}>
      <input name="baseUrl" placeholder="URL" />
      <input name="apiKey" placeholder="API key" />
      <button type="submit">Connect</button>
      <p id="connect-error">{error}</p>
    </form>
  );
}

function App() {
  const [server, setServer] = useState(stored);
  const client = useMemo(() => server && new ShlinkApiClient(new FetchHttpClient(), server), [server]);
  if (!server) {
    return <Connect onConnected={setServer} />;
  }
  return (
    <ShlinkSidebarVisibilityProvider>
      <ShlinkWebComponent
        serverVersion={server.version}
        apiClient={client}
        autoSidebarToggle={false}
        settings={{ realTimeUpdates: { enabled: false } }}
      />
    </ShlinkSidebarVisibilityProvider>
  );
}

createRoot(document.getElementById('root')).render(
  <BrowserRouter>
    <App />
  </BrowserRouter>,
);
