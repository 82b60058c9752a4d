/// <reference types="vite/client" />
/** The release of the package `ai` that the page is built with. */
declare const AI_SDK_RELEASE: string;
